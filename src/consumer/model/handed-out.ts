/**
 * What handlers and projections get is theirs for one run. A batch that is rolled back runs again with the same items, and
 * a run must not see what the one before it did to the data: what was handed out is decoded again.
 */
import { WaybillError } from '../../core/errors.ts'
import { readItem } from './decode.ts'
import { ItemFailure, type Item } from './batch-item.ts'
import type { Routes } from './routes.ts'

export type DataOf = (item: Item) => unknown

const handedOut = new WeakSet<Item>()

/** The data of these items for one run, which has it to itself. Throws for what cannot be read any more, or not now. */
export async function dataForRun(items: readonly Item[], routes: Routes): Promise<DataOf> {
  const again = new Map<Item, unknown>()
  for (const item of items) if (handedOut.has(item)) again.set(item, await decodeAgain(item, routes))
  return (item) => {
    handedOut.add(item)
    return again.has(item) ? again.get(item) : item.data
  }
}

async function decodeAgain(item: Item, routes: Routes): Promise<unknown> {
  const { data, refusal } = await readItem(item, routes)
  if (refusal?.passing === 'outage') throw new WaybillError('UNAVAILABLE', refusal.error)
  if (refusal !== undefined) throw new ItemFailure(item, new Error(refusal.error))
  return data
}
