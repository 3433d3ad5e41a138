/**
 * Many commands as one: one request id, one transaction, all or nothing, in the order that the caller gave.
 *
 * Each item is planned and executed as a child, with the metadata that the caller put beside it. All aggregates are locked
 * before the first item runs, in their own order, so that bulks in any order cannot wait for each other. Two bulks are the same request
 * if their items are, each by the fingerprint of its command.
 */
import { refuseUnknown } from '../core/options.ts'
import type { StandardSchema } from '../core/encoding/standard-schema.ts'
import { identityOf } from './pipeline/admit.ts'
import { command, definitionOf, type AnyCommand, type Command, type Planned } from './model/command.ts'

/** One item of a bulk. */
export interface BulkItem<Input> {
  readonly input: Input
  /** Handed to the item's `plan` and `execute` as `context.metadata`. What JSON can hold. */
  readonly metadata?: unknown
}

export interface BulkOptions {
  /** @default 'marker' */
  readonly store?: 'marker' | 'response'
  /** More are refused. @default 1_000 */
  readonly maxItems?: number
}

/** A command that runs `each` for every item, in order; its response is the list of theirs, in the same order. */
export function bulk<Input, Response>(
  name: string,
  each: Command<Input, Response>,
  options: BulkOptions = {},
): Command<readonly BulkItem<Input>[], readonly Response[]> {
  refuseUnknown(`bulk ${name}`, options, ['store', 'maxItems'])
  const { store = 'marker', maxItems = 1_000 } = options
  return command(name, {
    input: listOf<Input>(maxItems),
    fingerprint: (items) => identitiesOf(each, items),
    store,
    plan: async (items, { child }) => {
      const planned: Planned<Response>[] = []
      for (const { input, metadata } of items) planned.push(await child(each, input, { metadata }))
      return planned
    },
    execute: async (_tx, planned, { run }) => {
      const responses: Response[] = []
      for (const item of planned) responses.push(await run(item))
      return responses
    },
  })
}

/** What makes it the same bulk. It is asked about any input: one that is no list of items is told by the whole of it. */
async function identitiesOf(each: AnyCommand, items: readonly BulkItem<unknown>[]): Promise<unknown> {
  if (!Array.isArray(items) || !items.every(isItem)) return items
  const definition = definitionOf(each)
  const identities: BulkItem<unknown>[] = []
  for (const item of items) identities.push({ ...item, input: await identityOf(definition, item.input) })
  return identities
}

function isItem(item: unknown): item is BulkItem<unknown> {
  return typeof item === 'object' && item !== null && 'input' in item
}

/** The items themselves are checked by the schema of the command that they are for. */
function listOf<Input>(maxItems: number): StandardSchema<readonly BulkItem<Input>[]> {
  return {
    '~standard': {
      version: 1,
      vendor: 'waybill',
      validate: (value) =>
        Array.isArray(value) && value.length <= maxItems && value.every(isItem)
          ? { value: value as readonly BulkItem<Input>[] }
          : { issues: [{ message: `expected a list of at most ${maxItems} items, each { input, metadata? }` }] },
    },
  }
}
