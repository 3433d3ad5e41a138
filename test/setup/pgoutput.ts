/**
 * A plain client of pgoutput, the plugin that every Postgres has: reads the rows inserted into published tables from a
 * replication slot, as a connector would. Protocol version 1, values as text.
 */
import type pg from 'pg'

/** The rows that a plain pgoutput client finds in the slot; reading confirms them. */
export async function readInserts(pool: pg.Pool, slot: string, publication: string): Promise<Record<string, string>[]> {
  const { rows } = await pool.query<{ data: Buffer }>(
    `select data from pg_logical_slot_get_binary_changes($1, null, null, 'proto_version', '1', 'publication_names', $2)`,
    [slot, publication],
  )
  const columns = new Map<number, string[]>()
  const found: Record<string, string>[] = []
  for (const { data } of rows) {
    const reader = new Reader(data)
    const kind = reader.char()
    if (kind === 'R') columns.set(reader.int32(), relationColumns(reader))
    if (kind === 'I') found.push(tuple(reader, columns.get(reader.int32()) ?? []))
    if (kind === 'U' || kind === 'D' || kind === 'T') throw new Error(`The publication has more than inserts: ${kind}`)
  }
  return found
}

class Reader {
  #at = 0
  readonly #data: Buffer
  constructor(data: Buffer) {
    this.#data = data
  }
  char(): string {
    return String.fromCharCode(this.int8())
  }
  int8(): number {
    return this.#data.readUInt8(this.#at++)
  }
  int16(): number {
    this.#at += 2
    return this.#data.readInt16BE(this.#at - 2)
  }
  int32(): number {
    this.#at += 4
    return this.#data.readInt32BE(this.#at - 4)
  }
  text(bytes: number): string {
    this.#at += bytes
    return this.#data.toString('utf8', this.#at - bytes, this.#at)
  }
  zeroEnded(): string {
    const text = this.text(this.#data.indexOf(0, this.#at) - this.#at)
    this.#at += 1
    return text
  }
}

function relationColumns(reader: Reader): string[] {
  reader.zeroEnded()
  reader.zeroEnded()
  reader.int8()
  return Array.from({ length: reader.int16() }, () => {
    reader.int8()
    const name = reader.zeroEnded()
    reader.int32()
    reader.int32()
    return name
  })
}

function tuple(reader: Reader, columns: readonly string[]): Record<string, string> {
  reader.char()
  reader.int16()
  return Object.fromEntries(columns.map((name) => [name, reader.char() === 't' ? reader.text(reader.int32()) : '']))
}
