/**
 * The handlers of a batch share a transaction, but not what they set in it.
 *
 * What a handler sets until the end of the transaction (`set local`, `set_config('…', …, true)`) is put back when it returns: before the
 * next handler, and before what is written for all of them. What would outlive the transaction, or cannot be put back, is refused.
 * Only texts of statements are looked at, and settings are read only around handlers that are known to change some. The first call that
 * shows it is rolled back with its batch, which then runs again. What a function sets in the database is not seen.
 */
import { WaybillError } from '../../core/errors.ts'
import { execute, one, type Tx } from '../../postgres/query/database.ts'
import { withoutQuotes } from '../../postgres/adapters/statement-kind.ts'
import { keepSettings, putBackRole, putBackSettings } from '../tables/handler-settings.sql.ts'

/** A handler turned out to change settings that were not kept: its batch is to run again. */
export class SettingsNotKept extends Error {
  override readonly name: string = 'SettingsNotKept'
}

/** Looks at a statement before it is sent; what it returns is why that is refused. */
export type Watch = (text: unknown) => WaybillError | undefined

const mostNames = 20

/** The settings that handlers are known to change. */
const changedBy = new WeakMap<object, Set<string>>()

/** Runs a handler, whose statements pass `watch`, and puts back what they set. */
export async function keepingSettings(tx: Tx, handler: object, work: (watch: Watch) => Promise<void>): Promise<void> {
  const known = changedBy.get(handler)
  const kept = known && (await one(tx, keepSettings([...known])))
  const changed = new Set<string>()
  await work((text) => {
    const found = typeof text === 'string' && mayChange.test(text) ? settingsIn(text) : nothing
    for (const name of found.changes) changed.add(name)
    return found.refused === undefined ? undefined : refused(found.refused)
  })
  if (changed.size === 0) return
  const isKept = known !== undefined && [...changed].every((name) => known.has(name))
  if (kept === undefined || !isKept) {
    // Each new name runs the batch again: one that is made up for each event would do so for ever.
    if ((known?.size ?? 0) >= mostNames) throw refused('set local of ever new names')
    changedBy.set(handler, new Set([...(known ?? []), ...changed]))
    throw new SettingsNotKept('The batch runs again, with its settings kept.')
  }
  if (changed.has('role')) await execute(tx, putBackRole(kept.role))
  await execute(tx, putBackSettings(kept.settings))
}

interface Found {
  /** Names of settings, lower case. */
  readonly changes: readonly string[]
  /** What of the text is refused. */
  readonly refused?: string | undefined
}

const nothing: Found = { changes: [] }

/** Quick, and true for more than what changes something. */
const mayChange = /set_config|\btemp|(?:^|[;/\n])\s*(?:set|reset|discard)\s/i

const outlives: readonly RegExp[] = [
  /^set\s+(?!local\s)[\w.]+/i,
  /^set\s+local\s+session\s+authorization\b/i,
  /^set\s+local\s*(?:=|to\b|$)/i,
  /^(?:reset|discard)\s+\w+/i,
  /^create\s+(?:or\s+replace\s+)?(?:(?:local|global)\s+)?(?:temp|temporary)\s+\w+/i,
  /^select\b.*\binto\s+(?:(?:local|global)\s+)?(?:temp|temporary)\s+\w+/is,
  /^create\b[^(]*\bpg_temp\s*\.\s*\w+/i,
]

/** Of what `withoutQuotes` leaves: a call whose name is not a literal has none in the text. */
const named = /\bset_config\s*\(\s*'([^']+)'/gi
const forSession = /\bset_config\s*\(\s*'[^']+'\s*,\s*(?:'[^']*'|[^,()']+)\s*,\s*false\s*\)/i

/** What a text sets, as far as it says so. */
export function settingsIn(text: string): Found {
  const outline = withoutQuotes(text)
  const statements = outline.split(';').map((each) => each.trim())
  const locals = statements.flatMap((each) => /^set\s+local\s+([\w.]+)/i.exec(each)?.[1] ?? [])
  const calls = outline.match(/\bset_config\s*\(/gi)?.length ?? 0
  const configs = calls === 0 ? [] : [...text.matchAll(named)].map(([, name = '']) => name)
  const refused =
    statements.flatMap((each) => outlives.flatMap((pattern) => pattern.exec(each)?.[0] ?? []))[0] ??
    (calls > configs.length ? 'set_config without the name as a literal' : undefined) ??
    (calls > 0 && forSession.test(text) ? 'set_config(…, false)' : undefined)
  return { changes: [...locals, ...configs].map((name) => name.toLowerCase()), refused }
}

function refused(what: string): WaybillError {
  return new WaybillError(
    'INVALID_OPTION',
    `A handler sent "${what.replaceAll(/\s+/g, ' ').slice(0, 60)}", which its neighbours in the batch, or whoever has the connection next, would inherit. Use set local, or set_config('name', …, true); in place of a temporary table a CTE or an array.`,
  )
}
