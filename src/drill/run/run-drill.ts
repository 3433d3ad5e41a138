/**
 * Runs a drill: the fault, the wait for recovery (bounded), the checker's verdict, and a record of it all.
 *
 * The system is judged twice: as soon as it looks sound, and again when its processes have stopped, so that what comes late is
 * seen as well. A process that does not stop in order fails the drill.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { errorMessage } from '../../core/errors.ts'
import { rows } from '../../postgres/query/database.ts'
import type { Transport } from '../../transport/port/transport.ts'
import { checkHistory, type Verdict } from '../../testing/history/checker.ts'
import { aggregateName, type HistoryEntry } from '../../testing/history/entry.ts'
import { invariantIds } from '../../testing/history/invariants.ts'
import { readHistory } from '../../testing/history/read-history.ts'
import type { Drill, DrillRecord } from '../stage/drill.ts'
import { selectRequests, selectSeenVersions } from '../system/tables.sql.ts'
import { consumerName, createDrillConsumer } from '../system/system.ts'
import { Stage, type StageOptions } from '../stage/stage.ts'

export interface RunDrillOptions extends StageOptions {
  /** How long the system may take to recover. @default 60_000 */
  readonly recoverMs?: number
}

const lookMs = 100
const nothing = { committed: 0, published: 0, duplicates: 0, applied: 0 }

const notSeen = 'the fault was not seen to happen'

type Said = Pick<DrillRecord, 'verdict' | 'fired' | 'evidence' | 'timeline' | 'violations'> &
  Partial<Pick<DrillRecord, 'counts' | 'judged'>>

/** Runs it; what goes wrong is in the record, also that something of it is left behind. */
export async function runDrill(drill: Drill, options: RunDrillOptions): Promise<DrillRecord> {
  const { name, hazard, fault } = drill
  const startedMs = performance.now()
  const seconds = (): number => Math.round((performance.now() - startedMs) / 100) / 10
  const base = { name, hazard, fault, fired: false, timeline: [], counts: nothing, judged: [], violations: [] }
  const missing = missingFor(drill, options)
  if (missing !== undefined) return { ...base, verdict: 'skipped', evidence: missing, seconds: seconds() }
  let stage: Stage | undefined
  let said: Said
  try {
    stage = await Stage.open({ ...options, target: (await drill.on?.(options.target)) ?? options.target })
    await drill.run(stage)
    said = recordOf(stage, await recover(stage, options.recoverMs ?? 60_000))
  } catch (error) {
    const { timeline = [], evidence } = stage ?? {}
    said = {
      fired: evidence !== undefined,
      evidence: evidence ?? notSeen,
      timeline,
      verdict: 'fail',
      violations: [`The drill could not go on: ${errorMessage(error)}`],
    }
  }
  try {
    await stage?.close()
  } catch (error) {
    said = { ...said, verdict: 'fail', violations: [...said.violations, errorMessage(error)] }
  }
  return { ...base, ...said, seconds: seconds() }
}

function missingFor(drill: Drill, { target }: RunDrillOptions): string | undefined {
  if (drill.needs === 'servers' && target.servers === undefined)
    return 'It stops or restarts servers, which is not done to a stack that is not its own. Run it without --on config.'
  return drill.missing?.()
}

function recordOf(stage: Stage, { judged: { counts, invariants, violations, verdict }, restless }: Recovered): Said {
  const { evidence, timeline } = stage
  const fired = evidence !== undefined
  const unsound = [...(restless === undefined ? [] : [restless]), ...stage.failures()]
  const { commit = 0, log = 0, apply = 0 } = counts.ops
  return {
    verdict: fired && verdict === 'pass' && unsound.length === 0 ? 'pass' : 'fail',
    fired,
    evidence: evidence ?? notSeen,
    timeline,
    counts: { committed: commit, published: log, duplicates: counts.duplicates, applied: apply },
    judged: invariantIds.filter((id) => invariants[id].state !== 'not judged'),
    violations: [...violations.map(({ text }) => text), ...unsound],
  }
}

interface Recovered {
  readonly judged: Verdict
  /** What is wrong with a system that did not come to rest in its time. */
  readonly restless: string | undefined
}

/** Waits until the system is sound and still, or its time is over; stops its processes, and judges again. */
async function recover(stage: Stage, recoverMs: number): Promise<Recovered> {
  const startedMs = performance.now()
  let last: unknown
  let restless: string | undefined
  for (;;) {
    try {
      const isSound = (await judge(stage)).verdict === 'pass'
      if (isSound && (await isStill(stage))) break
    } catch (error) {
      // A database that is coming back cannot be asked yet.
      last = error
    }
    if (performance.now() - startedMs > recoverMs) {
      restless = `The system did not come to rest within ${recoverMs / 1_000} s.`
      break
    }
    await delay(lookMs)
  }
  if (restless === undefined) stage.note('the system is at rest', 'recovery')
  await stage.stopProcesses()
  try {
    return { judged: await judge(stage), restless }
  } catch (error) {
    throw last ?? error
  }
}

async function isStill({ target, topic }: Stage): Promise<boolean> {
  return ((await target.unsettled(topic, consumerName)) ?? 0) === 0
}

async function judge(stage: Stage): Promise<Verdict> {
  const { world, tap, recorded } = stage
  const { db, schema, tables, streams } = world
  const consumer = createDrillConsumer(world, { transport: { receive: noReceiving } })
  const found = await readHistory({
    // A deposit that cannot be digested is the owner's, and never the consumer's.
    owner: {
      db,
      schema,
      log: 'recorded',
      states: { account: `select id, total::text as value from ${tables.account.quoted} where id not like 'poison%'` },
    },
    consumers: [
      {
        consumer,
        effects: {
          query: `select event_id::text as event from ${tables.effect.quoted} order by id`,
          of: [streams.accounts.Deposited],
        },
        states: { account: `select account as id, sum(amount)::text as value from ${tables.effect.quoted} group by account` },
      },
    ],
  })
  const requests = (await rows(db, selectRequests(tables))).map(({ request, response }): HistoryEntry => ({
    op: 'effect',
    source: 'owner',
    request,
    response,
  }))
  const seen = (await rows(db, selectSeenVersions(tables))).map(({ account, version }): HistoryEntry => ({
    op: 'observe',
    source: 'projection',
    consumer: consumerName,
    aggregate: aggregateName('profile', account),
    version: Number(version),
  }))
  return checkHistory([...recorded, ...requests, ...tap.log, ...seen, ...found])
}

const noReceiving: Transport['receive'] = () => Promise.reject(new Error('This consumer only says what it reads.'))
