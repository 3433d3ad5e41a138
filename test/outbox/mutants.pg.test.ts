import { describe, expect, test } from 'vitest'
import type { createRelayEngine } from '../../src/outbox/relay/engine.ts'
import type { relayPass } from '../../src/outbox/relay/pass.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import { plantMistake } from '../setup/planted-mistake.ts'
import { testDatabase } from '../setup/test-database.ts'
import * as leases from './lease-scenarios.ts'
import * as order from './mutants/order-mutants.ts'
import * as settling from './mutants/settle-mutants.ts'
import * as scenario from './scenarios.ts'

const database = await testDatabase()
const db = fromPg(database.pool)

type Scenario = (db: Database) => Promise<string[]>

/** What is played, and by which mutants it is failed, each with what gives it away. */
const proofs: readonly {
  readonly rule: string
  readonly play: Scenario
  readonly mutants: Readonly<Record<string, readonly [play: Scenario, givenAwayBy: RegExp]>>
}[] = [
  {
    rule: 'an event that commits behind a failed head waits for it',
    play: scenario.commitBehindHead,
    mutants: {
      'lets rows through behind a head': [
        (on) => scenario.commitBehindHead(on, order.letThroughBehindHead),
        /^first-occurrence-order: video a v1 was first published after v2$/,
      ],
    },
  },
  {
    rule: 'what is due and what blocks it are seen at one moment',
    play: (on) => scenario.headFailsDuringRead(on),
    mutants: {
      'reads in two snapshots': [
        (on) => scenario.headFailsDuringRead(on, order.twoSnapshotRead),
        /^first-occurrence-order: video a v1 was first published after v3$/,
      ],
    },
  },
  {
    rule: 'nothing is held behind a head that is gone',
    play: scenario.headGoesDuringHold,
    mutants: {
      'locks and looks in one statement': [
        (on) => scenario.headGoesDuringHold(on, settling.lockAndLookAtOnce),
        /^liveness: 1 outbox rows/,
      ],
      'settles without locking the lane': [
        (on) => scenario.headGoesDuringHold(on, settling.settleWithoutLock),
        /^liveness: 1 outbox rows/,
      ],
      'holds without looking again': [
        (on) => scenario.headGoesDuringHold(on, settling.uncheckedHold),
        /^liveness: 1 outbox rows/,
      ],
    },
  },
  {
    rule: 'when a head goes, the next is promoted',
    play: scenario.headRecovers,
    mutants: {
      'releases without promotion': [
        (on) => scenario.headRecovers(on, settling.releaseWithoutPromotion),
        /^liveness: \d outbox rows/,
      ],
      'removes heads by the fast delete': [
        (on) => scenario.headRecovers(on, settling.fastDeleteOfAnyState),
        /^liveness: \d outbox rows/,
      ],
    },
  },
  {
    rule: 'only what was confirmed is removed, not what committed in between',
    play: scenario.commitDuringConfirm,
    mutants: {
      'deletes a range': [
        (on) => scenario.commitDuringConfirm(on, order.rangeDelete),
        /^no-loss: video b v1 was committed and never published$/,
      ],
    },
  },
  {
    rule: 'a row is removed by its event, not by a number that a restore gave away again',
    play: scenario.sequenceFallsBack,
    mutants: {
      'deletes by lane and number': [
        (on) => scenario.sequenceFallsBack(on, order.deleteBySequenceOnly),
        /^no-loss: video b v1 was committed and never published$/,
      ],
    },
  },
  {
    rule: 'a run stops at its first failure',
    play: scenario.failureInsideRun,
    mutants: {
      'continues after a failure': [
        (on) => scenario.failureInsideRun(on, order.continueAfterFailure),
        /^first-occurrence-order: video a v1 was first published after v3$/,
      ],
    },
  },
  {
    rule: 'writers of one aggregate take their versions in turn',
    play: scenario.writersMeet,
    mutants: {
      'takes the version outside the lock': [
        (on) => scenario.writersMeet(on, order.versionOutsideLock),
        /^no-ghost: video a v1 was committed as two events$/,
      ],
    },
  },
  {
    rule: 'the place in line is taken after the version',
    play: scenario.writerOvertaken,
    mutants: {
      'takes its place before the lock': [
        (on) => scenario.writerOvertaken(on, order.placeBeforeLock),
        /^first-occurrence-order: video a v1 was first published after v2$/,
      ],
    },
  },
  {
    rule: 'a relay that lost its lane while it confirmed changes nothing there',
    play: scenario.laneTakenDuringConfirm,
    mutants: {
      'fences without a lock': [(on) => scenario.laneTakenDuringConfirm(on, settling.fenceWithoutLock), /^wrote into a lane/],
      'fences with too weak a lock': [
        (on) => scenario.laneTakenDuringConfirm(on, settling.fenceWithKeyShare),
        /^wrote into a lane/,
      ],
    },
  },
  {
    rule: 'what a relay learns after it lost its lane has no effect',
    play: scenario.lateRefusal,
    mutants: {
      'settles without a fence': [(on) => scenario.lateRefusal(on, settling.unfencedSettle), /^liveness: 1 outbox rows \(held\)/],
    },
  },
  {
    rule: 'a relay that was frozen beyond its lease sends nothing of what it had read',
    play: (on) => leases.droppedBehindFrozen(on),
    mutants: {
      'sends after its lease': [
        async (on) => leases.droppedBehindFrozen(on, (await passThatSendsLate()).relayPass),
        /^no-ghost: video a v1/,
      ],
    },
  },
  {
    rule: 'a publish that never settles lets its lanes go',
    play: (on) => leases.batchHangs(on, 'publish'),
    mutants: {
      'renews for a batch that hangs': [
        async (on) => leases.batchHangs(on, 'publish', (await engineThatKeepsLanes()).createRelayEngine),
        /^keeps the lanes of a batch that hangs$/,
      ],
    },
  },
  {
    rule: 'a read that is never answered lets its lanes go',
    play: (on) => leases.batchHangs(on, 'read'),
    mutants: {},
  },
  {
    rule: 'an event that commits below what was seen already goes out',
    play: scenario.commitBelowWhatWasSeen,
    mutants: {
      'polls by a cursor': [
        (on) => scenario.commitBelowWhatWasSeen(on, order.cursorPolling()),
        /^no-loss: video a v1 was committed and never published$/,
      ],
    },
  },
  {
    rule: 'two relays at once keep the order of an aggregate',
    play: (on) => scenario.twoRelaysAtOnce(on),
    mutants: {
      'claims rows instead of lanes': [
        (on) => scenario.twoRelaysAtOnce(on, { naive: true }),
        /^first-occurrence-order: video a v1 was first published after v2$/,
      ],
    },
  },
  {
    rule: 'an event that was deleted before it was published stops its key and is reported',
    play: scenario.eventDeleted,
    mutants: { 'joins it away': [(on) => scenario.eventDeleted(on, order.innerJoin), /^published what stands behind/] },
  },
  {
    rule: 'a claim takes no more lanes than it asked for, whatever the plan',
    play: (on) => scenario.claimOfFive(on),
    mutants: { 'claims by a subquery': [(on) => scenario.claimOfFive(on, settling.claimBySubquery), /^claimed 64 lanes/] },
  },
]

function passThatSendsLate(): Promise<{ readonly relayPass: typeof relayPass }> {
  const file = new URL('../../src/outbox/relay/pass.ts', import.meta.url)
  return plantMistake(file, { from: 'deps.leases.mayWork() &&', to: '' })
}

function engineThatKeepsLanes(): Promise<{ readonly createRelayEngine: typeof createRelayEngine }> {
  const file = new URL('../../src/outbox/relay/engine.ts', import.meta.url)
  return plantMistake(file, { from: 'if (!batch.isStuck())', to: '' })
}

describe.each(proofs)('$rule', ({ play, mutants }) => {
  test('the relay keeps it', async () => {
    expect(await play(db)).toEqual([])
  })
  test.each(Object.entries(mutants))('a mutant that %s is caught', async (_, [playBroken, givenAwayBy]) => {
    const found = await playBroken(db)
    expect(found).toContainEqual(expect.stringMatching(givenAwayBy))
  })
})
