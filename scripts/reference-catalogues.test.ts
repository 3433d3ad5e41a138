import { expect, test } from 'vitest'
import { optionPages, schemaTable } from './reference-catalogues.ts'

const source = `
export interface RelayOptions {
  readonly db: Queryable
  /** Events in a pass | while idle. @default 5_000 */
  readonly batchSize?: number
  /**
   * Who keeps
   * them. @default 'broker'
   */
  readonly offsets?: 'broker' | 'postgres'
  readonly nested?: { readonly inner: string }
}
`

test('options have their name, whether they are required, their default and their comment', () => {
  const page = optionPages([{ call: 'createRelay', interfaces: [['RelayOptions', 'relay.ts']] }], () => source)
  expect(page.split('\n')).toEqual([
    '### createRelay',
    '',
    '| option | default | meaning |',
    '| --- | --- | --- |',
    '| `db` | required |  |',
    '| `batchSize` | `5,000` | Events in a pass \\| while idle. |',
    "| `offsets` | `'broker'` | Who keeps them. |",
    '| `nested` |  |  |',
  ])
})

test('an interface that is not there is an error, not a shorter page', () => {
  const missing = [{ call: 'x', interfaces: [['Gone', 'relay.ts']] }] as const
  expect(() => optionPages(missing, () => source)).toThrow('relay.ts declares no interface Gone')
})

test('tables have the comment above them without its list, and the columns of the snapshot', () => {
  const migrations = '-- Who works\n-- which lane.\n--   0 due\ncreate table :schema.lane (\n);\n'
  const snapshot = 'relation lane r owner x\nrelation lane_seq S owner x\ncolumn lane.id int\ncolumn lane_old.id int\n'
  expect(schemaTable(migrations, snapshot).split('\n').at(-1)).toBe('| `lane` | Who works which lane. | `id` |')
  expect(() => schemaTable('create table :schema.lane (\n);\n', snapshot)).toThrow('lane has no comment')
})
