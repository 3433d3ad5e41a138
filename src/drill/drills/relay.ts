/** What happens between a COMMIT and the broker: crashes, lost leases, long transactions, outages. */
import { one } from '../../postgres/query/database.ts'
import { transaction } from '../../postgres/transaction/transaction.ts'
import type { Drill } from '../stage/drill.ts'
import { selectOwnPid, transactionAgeMs } from '../system/tables.sql.ts'
import { deposit } from '../system/system.ts'
import { serversOf } from '../target/target.ts'

const crashAfterCommit: Drill = {
  name: 'crash-after-commit',
  hazard:
    'A service commits a change and dies before anything was published. Published afterwards by hand, the event would be lost; published before, it would tell of a change that never was.',
  fault: 'A service with its relay is killed (SIGKILL) after its COMMITs, before its first publish.',
  needs: 'processes',
  run: async (stage) => {
    const service = await stage.start('service', { failpoint: { name: 'before publish', action: 'kill' } })
    await service.killedAt('before publish')
    const waiting = await stage.unpublished()
    if (waiting > 0 && stage.tap.messages.length === 0)
      stage.fired(`the service was ended by SIGKILL; ${waiting} committed events were in the outbox, none at the broker`)
    await stage.start('relay')
    await stage.start('consumer')
    await stage.write(10)
  },
}

const crashAfterPublish: Drill = {
  name: 'crash-after-publish',
  hazard:
    'A relay dies after the broker took its messages and before it could note that. The next one cannot know, and publishes them again.',
  fault: 'A relay is killed (SIGKILL) when its first publish is confirmed and not yet marked.',
  needs: 'processes',
  run: async (stage) => {
    await stage.write(20)
    const relay = await stage.start('relay', { failpoint: { name: 'after publish', action: 'kill' } })
    await relay.killedAt('after publish')
    await stage.until(() => stage.tap.messages.length > 0)
    // A publish that was late may be there twice.
    const published = (): number => new Set(stage.tap.log.map(({ event }) => event)).size
    const [waiting, taken] = [await stage.unpublished(), published()]
    if (waiting >= taken)
      stage.fired(`the relay was ended by SIGKILL; the broker had at least ${taken} events, all still unpublished in the outbox`)
    await stage.start('relay')
    await stage.start('consumer')
    await stage.until(() => stage.tap.log.length > published())
    stage.note('the next relay has published them again')
  },
}

const leaseLoss: Drill = {
  name: 'lease-loss',
  hazard:
    'A relay stands still (a long pause, a frozen machine) for longer than its lease, and wakes up believing that its lanes are its own.',
  fault: 'A relay is frozen (SIGSTOP) after a publish, beyond its lease; another takes its lanes; then the first goes on.',
  needs: 'processes',
  run: async (stage) => {
    await stage.write(20)
    const sleeper = await stage.start('relay', { failpoint: { name: 'after publish', action: 'freeze' } })
    await sleeper.reached('after publish')
    stage.note(`the relay ${sleeper.child.pid} stands still`)
    const other = await stage.start('relay')
    await stage.start('consumer')
    await stage.until(() => other.signals('relay.published').length > 0)
    const taken = other.signals('lanes.acquired').flatMap(({ lanes }) => lanes).length
    sleeper.child.thaw()
    stage.note('it goes on')
    await stage.until(() => sleeper.signals('lanes.lost').length > 0)
    const lost = sleeper.signals('lanes.lost').flatMap(({ lanes }) => lanes).length
    stage.fired(
      `while one relay was frozen another took ${taken} lanes and published; the first then noticed that ${lost} were lost`,
    )
    await stage.write(10)
  },
}

const longTransaction: Drill = {
  name: 'long-transaction',
  hazard:
    'A transaction with an event in it stays open while later ones commit. Readers that follow a sequence or a snapshot pass it by, and its event is never published.',
  fault: 'A transaction (repeatable read) adds an event and stays open while 30 others commit, are published and applied.',
  needs: 'processes',
  run: async (stage) => {
    await stage.start('relay')
    await stage.start('consumer')
    const { world } = stage
    const added = Promise.withResolvers<{ readonly pid: number }>()
    const gate = Promise.withResolvers<void>()
    let stood = 0
    const long = transaction(
      world.db,
      async (tx) => {
        await deposit(world, tx, { account: 'slow', amount: 1 })
        added.resolve(await one(tx, selectOwnPid()))
        stood += 1
        await gate.promise
      },
      // It may stay open for as long as the others take, however slow the stack is.
      { isolation: 'repeatable read', idleInTransactionTimeoutMs: 0 },
    )
    // A transaction that cannot begin adds nothing, and says why.
    long.catch(added.reject)
    const { pid } = await added.promise
    stage.note('a transaction has added an event and stays open', 'fault')
    try {
      await stage.write(30)
      await stage.until(async () => (await stage.effects()) >= 30)
      const { ms } = await one(world.db, transactionAgeMs(pid))
      gate.resolve()
      await long
      // One that was ended meanwhile ran again, through the open gate: that was no long transaction.
      if (stood === 1)
        stage.fired(`the transaction had been open for ${Math.round(ms)} ms when 30 later deposits were published and applied`)
    } finally {
      // Left open, it would keep its connection, and with it the end of the drill.
      gate.resolve()
      await long.catch(() => undefined)
    }
  },
}

const brokerOutage: Drill = {
  name: 'broker-outage',
  hazard:
    'The broker is away for a while. Writers must not wait for it, nothing may be lost or given up, and no storm follows its return.',
  fault: 'The broker is stopped while deposits go on, and started again when the relay has opened its breaker.',
  needs: 'servers',
  run: async (stage) => {
    const { broker } = serversOf(stage.target)
    const relay = await stage.start('relay')
    await stage.start('consumer')
    await stage.write(10)
    await stage.until(async () => (await stage.effects()) >= 10)
    await broker.stop()
    stage.note('the broker is stopped', 'fault')
    await stage.write(20)
    await stage.until(() => relay.signals('relay.breaker').some(({ state }) => state === 'open'))
    stage.fired(
      `the relay found the broker out of reach and opened its breaker; ${await stage.unpublished()} events waited in the outbox`,
    )
    await broker.start()
    stage.note('the broker is back', 'recovery')
  },
}

export const relayDrills: readonly Drill[] = [crashAfterCommit, crashAfterPublish, leaseLoss, longTransaction, brokerOutage]
