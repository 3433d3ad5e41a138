/**
 * A rule broken on purpose: a step of the relay, its publisher or a function of the schema is replaced.
 *
 * Mutants live in tests only. Where one is the real statement with a part changed, the change must find its place, so that
 * a mutant cannot quietly become the real thing.
 */
import type { RelaySteps } from '../../../src/outbox/relay/steps.ts'
import type { Database } from '../../../src/postgres/query/database.ts'
import type { Statement } from '../../../src/postgres/query/sql.ts'
import type { Publisher } from '../../../src/transport/port/transport.ts'
import type { OutboxFixture } from '../../setup/outbox-fixture.ts'

export interface Mutant {
  readonly steps?: Partial<RelaySteps>
  readonly publisher?: (publisher: Publisher) => Publisher
  /** Changes of the schema itself. */
  readonly prepare?: (fixture: OutboxFixture) => Promise<void>
}

/** The text with one part changed; throws if it is not there. */
export function changed(text: string, from: string | RegExp, to: string): string {
  const result = text.replace(from, () => to)
  if (result === text) throw new Error(`The mutant found nothing to change: ${String(from)}`)
  return result
}

/** The statement with parts of its text changed. */
export function changedStatement<Row>(
  statement: Statement<Row>,
  ...changes: readonly (readonly [from: string | RegExp, to: string])[]
): Statement<Row> {
  return { ...statement, text: changes.reduce((text, [from, to]) => changed(text, from, to), statement.text) }
}

/** Replaces a function of the schema by itself with a part changed. */
export async function changeFunction(
  { db, outbox }: { readonly db: Database; readonly outbox: OutboxFixture['outbox'] },
  name: string,
  ...changes: readonly (readonly [from: string | RegExp, to: string])[]
): Promise<void> {
  const { rows } = await db.query(
    `select pg_get_functiondef(p.oid) as definition from pg_proc p where p.pronamespace = $1::text::regnamespace and p.proname = $2`,
    [outbox.tables.schema, name],
  )
  const [found] = rows as { definition: string }[]
  if (found === undefined) throw new Error(`There is no function ${name}.`)
  await db.query(changes.reduce((text, [from, to]) => changed(text, from, to), found.definition))
}
