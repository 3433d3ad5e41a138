/** What the adapters are for: the schema, the outbox and the relay work through each of them. */
import { expect, test } from 'vitest'

import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { memory } from '../../src/transport/memory/memory.ts'
import { log, outboxFixture, videos } from '../setup/outbox-fixture.ts'
import type { AdapterContext } from './adapter-harness.ts'

export function outbox<Native>({ use }: AdapterContext<Native>): void {
  test('an event commits with the native statement beside it, and the relay publishes it', async () => {
    const { db, insertNote } = await use()
    const { outbox: box, relay } = await outboxFixture(db)
    await transaction(db, async (tx) => {
      await insertNote(tx.native, 1, 'published')
      await box.add(tx, videos.VideoPublished, 'v1', { title: 'first' })
    })
    const declined = transaction(db, async (tx) => {
      await box.add(tx, videos.VideoPublished, 'v1', { title: 'never' })
      throw new Error('card declined')
    })
    await expect(declined).rejects.toThrow('card declined')
    const outOfTurn = transaction(db, (tx) => box.add(tx, videos.VideoPublished, 'v1', { title: 'again' }, { version: 1n }))
    await expect(outOfTurn).rejects.toMatchObject({ code: 'VERSION_OUT_OF_ORDER' })
    const broker = memory()
    await relay(broker).once()
    expect(log(broker)).toEqual(['v1 1'])
  })
}
