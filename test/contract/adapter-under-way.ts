/** A closure that ends while something is under way is rolled back and told what it was: half of a pair never stands. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'

import { systemClock } from '../../src/core/service/clock.ts'
import { createSignals, type SignalBus, type Signals } from '../../src/core/signals.ts'
import type { Outbox } from '../../src/outbox/outbox.ts'
import type { Tx } from '../../src/postgres/query/database.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { transaction } from '../../src/postgres/transaction/transaction.ts'
import { interrupt } from '../../src/postgres/transaction/tx-scope.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { outboxFixture, videos } from '../setup/outbox-fixture.ts'
import type { FileDatabase } from '../setup/test-database.ts'
import { lockWaits, notes, type AdapterContext, type AdapterHarness } from './adapter-harness.ts'

/** What no closure left behind may write. */
const leftOver = { code: 'NOT_A_TRANSACTION', message: expect.stringMatching(/still under way.*rolled back/s) }

interface Parts<Native> extends Pick<AdapterHarness<Native>, 'db' | 'insertNote'> {
  readonly box: Outbox
  readonly left: () => Promise<readonly [notes: number, events: number]>
}

/** A change and its event, in either order, with whatever statement the library has for the change. */
const pairs = {
  'the change first': async <Native>({ box, insertNote }: Parts<Native>, tx: Tx<Native>, id: number): Promise<void> => {
    await insertNote(tx.native, id, 'pair')
    await box.add(tx, videos.VideoPublished, `v${id}`, { title: 'pair' })
  },
  'the event first': async <Native>({ box, insertNote }: Parts<Native>, tx: Tx<Native>, id: number): Promise<void> => {
    await box.add(tx, videos.VideoPublished, `v${id}`, { title: 'pair' })
    await insertNote(tx.native, id, 'pair')
  },
}

export function underWay<Native>({ database, use }: AdapterContext<Native>): void {
  const open = async (): Promise<Parts<Native>> => {
    const { db, insertNote } = await use()
    const { outbox: box, states } = await outboxFixture(db)
    const left = async () => {
      // All that was left behind has had its say when the one connection is free again and idle.
      await transaction(db, (tx) => tx.query('select 1'))
      await nextTurn()
      return [(await notes(database)).length, Object.keys(await states()).length] as const
    }
    return { db, insertNote, box, left }
  }

  test.each(Object.entries(pairs))(
    'pairs that another failure left behind in a list do not commit by half: %s',
    async (_order, pair) => {
      const parts = await open()
      let both: Promise<unknown>[] = []
      const work = transaction(parts.db, async (tx) => {
        both = [pair(parts, tx, 1), pair(parts, tx, 2)]
        const validate = Promise.reject(new Error('the address is not valid'))
        return await Promise.all([...both, validate]).catch(() => 'saved without address')
      })
      await expect(work).rejects.toMatchObject(leftOver)
      await Promise.allSettled(both)
      expect(await parts.left()).toEqual([0, 0])
    },
  )

  test.each(Object.entries(pairs))('a pair that nobody awaited does not commit by half: %s', async (_order, pair) => {
    const parts = await open()
    let late: Promise<unknown> = Promise.resolve()
    const work = transaction(parts.db, async (tx) => {
      late = pair(parts, tx, 1)
      late.catch(() => undefined)
    })
    await expect(work).rejects.toMatchObject(leftOver)
    await Promise.allSettled([late])
    expect(await parts.left()).toEqual([0, 0])
  })

  test('a single statement that nobody awaited is rolled back with everything before it, and named', async () => {
    const parts = await open()
    for (const statement of [
      (tx: Tx<Native>) => tx.query(`insert into note values (2, 'late')`),
      (tx: Tx<Native>) => parts.insertNote(tx.native, 2, 'late'),
    ]) {
      let late: Promise<unknown> = Promise.resolve()
      const work = transaction(parts.db, async (tx) => {
        await parts.insertNote(tx.native, 1, 'kept?')
        late = Promise.resolve(statement(tx))
        late.catch(() => undefined)
      })
      await expect(work).rejects.toMatchObject({ ...leftOver, message: expect.stringMatching(/while .*note/i) })
      await Promise.allSettled([late])
      expect(await parts.left()).toEqual([0, 0])
    }
  })

  test('an event counts from the first line of add, also while its data is encoded', async () => {
    const parts = await open()
    const work = transaction(parts.db, async (tx) => {
      await parts.insertNote(tx.native, 1, 'kept?')
      parts.box.add(tx, videos.VideoPublished, 'v1', { title: 'late' }).catch(() => undefined)
    })
    await expect(work).rejects.toThrow(/while outbox\.add\(VideoPublished\)/)
    expect(await parts.left()).toEqual([0, 0])
  })

  test('a block that joined the transaction and was not awaited is rolled back with it', async () => {
    const parts = await open()
    const leave = Promise.withResolvers<void>()
    const work = transaction(parts.db, async (tx) => {
      await parts.insertNote(tx.native, 1, 'kept?')
      transaction(tx, () => leave.promise.then(() => tx.query('select 1'))).catch(() => undefined)
    })
    await expect(work).rejects.toThrow(/while a nested transaction was still under way/)
    leave.resolve()
    expect(await parts.left()).toEqual([0, 0])
  })

  test('what runs side by side and is awaited commits, in whichever way it was sent', async () => {
    const parts = await open()
    const ids = Array.from({ length: 10 }, (_, i) => i)
    await transaction(parts.db, (tx) => Promise.all(ids.map((id) => pairs['the change first'](parts, tx, id))))
    await transaction(parts.db, (tx) => Promise.all(ids.map((id) => pairs['the event first'](parts, tx, 10 + id))))
    expect(await parts.left()).toEqual([20, 20])
  })

  test('what comes after the end is refused and told, with whether the rest was committed', async () => {
    const parts = await open()
    const told: Signals['transaction.used-after-end'][] = []
    const signals: SignalBus = createSignals()
    signals.on('transaction.used-after-end', (event) => void told.push(event))
    for (const end of [() => undefined, () => Promise.reject(new Error('card declined'))]) {
      const leave = Promise.withResolvers<void>()
      let late: readonly Promise<unknown>[] = []
      const work = transaction(
        parts.db,
        async (tx) => {
          const after = (each: () => Promise<unknown>): Promise<unknown> => leave.promise.then(each)
          late = [
            after(() => tx.query('select 1')),
            after(() => parts.box.add(tx, videos.VideoPublished, 'v1', { title: 'late' })),
            after(async () => await parts.insertNote(tx.native, 1, 'late')),
          ]
          await tx.query('select 2')
          await end()
        },
        { signals },
      )
      await work.catch(() => undefined)
      leave.resolve()
      for (const each of late) await expect(each).rejects.toThrow(/./)
    }
    expect(await parts.left()).toEqual([0, 0])
    expect(told.map(({ rolledBack }) => rolledBack)).toEqual([false, false, false, true, true, true])
    expect(told.map(({ what }) => what)).toEqual(expect.arrayContaining(['select 1', 'outbox.add(VideoPublished)']))
  })

  test('what nobody waits for any more is ended by the server, and the connection serves the next one', async () => {
    const { db, insertNote } = await use()
    const server = fromPg(database.pool)
    const hanging = `select from pg_stat_activity where datname = current_database() and query like 'select pg_sleep(3600)%' and state = 'active'`
    let end: unknown
    const work = transaction(
      db,
      async (tx) => {
        await insertNote(tx.native, 1, 'kept?')
        tx.query('select pg_sleep(3600)::text').catch((error: unknown) => (end = error))
        await eventually(async () => (await database.pool.query(hanging)).rowCount === 1, { intervalMs: 1 })
        await interrupt(server, tx, systemClock)
        throw new Error('given up')
      },
      { statementTimeoutMs: 20_000 },
    )
    await expect(work).rejects.toThrow('given up')
    await eventually(() => end !== undefined)
    expect(end).toMatchObject({ message: expect.stringContaining('user request') })
    await transaction(db, (tx) => insertNote(tx.native, 2, 'the next one'))
    expect(await notes(database)).toEqual([{ id: 2, text: 'the next one' }])
  })

  test('a statement that waits for its turn when the closure throws is not run', async () => {
    const { db, insertNote } = await use()
    const other = await database.pool.connect()
    await other.query(`begin; insert into note values (1, 'in the way')`)
    const closed = Promise.withResolvers<void>()
    let second: Promise<unknown> = Promise.resolve()
    const work = transaction(db, async (tx) => {
      tx.query(`insert into note values (1, 'first')`).catch(() => undefined)
      second = tx.query(`select pg_advisory_lock(4711)::text`)
      second.catch(() => undefined)
      await eventually(async () => (await database.pool.query(lockWaits)).rowCount === 1, { intervalMs: 1 })
      closed.resolve()
      throw new Error('card declined')
    })
    work.catch(() => undefined)
    await closed.promise
    await other.query('rollback')
    other.release()
    await expect(work).rejects.toThrow('card declined')
    await Promise.allSettled([second])
    await transaction(db, (tx) => insertNote(tx.native, 3, 'the next one'))
    expect(await notes(database)).toEqual([{ id: 3, text: 'the next one' }])
  })
}

/** For libraries that show it: in the user's own transaction we see its end only by what was sent. */
export function refusesBehindCommit<Native>(
  name: string,
  database: FileDatabase,
  open: (url: string) => AdapterHarness<Native> | Promise<AdapterHarness<Native>>,
): void {
  test(`${name}: an event that is added behind the COMMIT of the user’s own transaction is refused, before that is answered`, async () => {
    const harness = await open(database.url)
    const { outbox: box, states } = await outboxFixture(harness.db)
    await database.pool.query('create table if not exists slot (id int unique deferrable initially deferred)')
    const other = await database.pool.connect()
    await other.query('begin; insert into slot values (7)')
    const committing = Promise.withResolvers<Tx<Native>>()
    // Its COMMIT waits for the other one.
    const own = harness.ownTransaction(async (tx) => {
      await tx.query('insert into slot values (7)')
      committing.resolve(tx)
    })
    const tx = await committing.promise
    await eventually(async () => (await database.pool.query(lockWaits)).rowCount === 1, { intervalMs: 1 })
    const late = box.add(tx, videos.VideoPublished, 'v1', { title: 'late' })
    late.catch(() => undefined)
    await nextTurn()
    await other.query('rollback')
    other.release()
    await own
    await expect(late).rejects.toMatchObject({ code: 'NOT_A_TRANSACTION' })
    expect(await states()).toEqual({})
    await harness.close()
    await database.pool.query('truncate slot')
  })
}
