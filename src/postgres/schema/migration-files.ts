/**
 * The numbered migrations that ship with this package, as values.
 *
 * A file is `sql/NNNN_verb_noun.sql`. Once released it never changes: its checksum is kept in the database. It says
 * `:schema` where the schema's quoted name goes and `:'schema'` where it is needed as text. Comment lines before the first
 * statement may be headers:
 *   -- breaking         processes of packages that do not know this migration refuse to run on it
 *   -- no-transaction   one statement that can be run again, such as create index concurrently if not exists
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { WaybillError } from '../../core/errors.ts'
import { name } from '../query/sql.ts'

export interface Migration {
  readonly number: number
  /** `0001_create_foundation` */
  readonly name: string
  /** The text as shipped, `:schema` not yet replaced. */
  readonly text: string
  readonly checksum: string
  readonly breaking: boolean
  readonly transactional: boolean
}

/** The migrations of this package, in order. Reads the disk once. */
export function shippedMigrations(): readonly Migration[] {
  shipped ??= readMigrations(new URL('../../../sql/', import.meta.url))
  return shipped
}

/** The version of this package, as recorded beside the migrations it applied. */
export function packageVersion(): string {
  const manifest = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')) as { version: string }
  return manifest.version
}

/** Reads a folder of migrations; numbers must run 1, 2, 3 … */
export function readMigrations(folder: URL): readonly Migration[] {
  const migrations = listFolder(folder)
    .filter((file) => file.endsWith('.sql'))
    .toSorted()
    .map((file) => parseMigration(file, readFileSync(new URL(file, folder), 'utf8')))
  const stray = migrations.find(({ number }, index) => number !== index + 1)
  if (stray !== undefined)
    throw new WaybillError('INTERNAL', `Migration ${stray.name} is out of turn: numbers must run 0001, 0002, 0003 …`)
  return migrations
}

/** A migration from its file's name and content. Line ends do not count, so that a checkout on Windows is the same. */
export function parseMigration(file: string, content: string): Migration {
  const match = /^(\d{4})_[a-z0-9_]+(?=\.sql$)/.exec(file)
  if (match === null) throw new WaybillError('INTERNAL', `${file}: a migration is named NNNN_verb_noun.sql.`)
  const text = content.replaceAll('\r\n', '\n')
  const headers = new Set(headerLines(text))
  return {
    number: Number(match[1]),
    name: match[0],
    text,
    checksum: createHash('sha256').update(text).digest('hex'),
    breaking: headers.has('breaking'),
    transactional: !headers.has('no-transaction'),
  }
}

/** The migration's SQL for a schema. */
export function renderMigration(migration: Migration, schema: string): string {
  const quoted = name(schema).quoted
  return migration.text.replaceAll(":'schema'", `'${schema}'`).replaceAll(/(?<![:\w]):schema\b/g, quoted)
}

let shipped: readonly Migration[] | undefined

function headerLines(text: string): string[] {
  const lines = text.split('\n')
  const end = lines.findIndex((line) => line.trim() !== '' && !line.startsWith('--'))
  return lines.slice(0, end === -1 ? lines.length : end).map((line) => line.replace(/^--/, '').trim())
}

function listFolder(folder: URL): string[] {
  try {
    return readdirSync(folder)
  } catch (cause) {
    throw new WaybillError(
      'NOT_FOUND',
      `The migrations of this package are not at ${folder.pathname}. If a bundler packs your service, mark "waybill" as external.`,
      { cause },
    )
  }
}
