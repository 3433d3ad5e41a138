/**
 * Sends readings while every hop is killed in turn, then checks the table: `npm run example -- ingest chaos`.
 *
 * The order of the kills is drawn from a seed; each hop is killed as often as the others. Clients repeat a reading until it is
 * accepted, and some of them once more after that. At the end the table must hold exactly the accepted business keys, and every
 * event must have taken effect once. Exits with 1 and says why if anything does not agree.
 */
import { createIngestClient, factId, seededRandom, type FactOutcome } from 'waybill'
import { startHops, type HopName } from './hops.ts'
import { readingKey, readings, type Reading } from './readings.ts'

const facts = Number(process.env['INGEST_FACTS'] ?? 5_000)
const killsOfEach = Number(process.env['INGEST_KILLS'] ?? 3)
const patienceMs = Number(process.env['INGEST_PATIENCE_MS'] ?? 120_000)
const clients = 32
const random = seededRandom(process.env['INGEST_SEED'] ?? 7)
const startedMs = performance.now()
const say = (line: string): void =>
  void process.stdout.write(`${((performance.now() - startedMs) / 1_000).toFixed(1).padStart(6)} s  ${line}\n`)

const hops = await startHops()
say(`Everything runs, over ${hops.broker}. ${facts} readings are sent to ${hops.url}`)
const accepted = new Map<string, Reading>()
const problems: string[] = []
let requests = 0
let next = 0
let repeated = 0
let killed = 0

const counted: typeof fetch = (url, init) => {
  requests += 1
  return fetch(url, init)
}
const client = createIngestClient({
  url: hops.url,
  fetch: counted,
  maxAttempts: 10_000,
  attemptTimeoutMs: 5_000,
  backoff: { firstMs: 20, maxMs: 500, jitter: 'full' },
})

const kills = shuffle(Array.from({ length: killsOfEach }, () => hops.names).flat())
const share = facts / (kills.length + 1)

/** Takes readings, one or several at a time, and sends them until they are accepted; never so fast that a kill finds nothing. */
async function sendAll(atOnce: number): Promise<void> {
  for (let n = next; n < facts; n = next) {
    next += atOnce
    while (n >= share * (killed + 1.8)) await new Promise((resolve) => setTimeout(resolve, 5))
    const list = Array.from({ length: Math.min(atOnce, facts - n) }, (_, i) => readingOf(n + i))
    for (let times = random.next() < 0.1 ? 2 : 1; times > 0; times -= 1) {
      const outcomes = atOnce === 1 ? [await client.send(list[0])] : await client.sendMany(list)
      outcomes.forEach((outcome, i) => note(list[i] as Reading, outcome))
    }
  }
}

function readingOf(n: number): Reading {
  return { meter: `meter-${n % 97}`, at: n, value: n / 10 }
}

function note(reading: Reading, outcome: FactOutcome): void {
  const name = `${reading.meter} ${reading.at}`
  if (outcome.status === 'refused') return void problems.push(`${name} was refused: ${outcome.message}`)
  const expected = factId(readings.ReadingTaken, readingKey(reading))
  if (outcome.eventId !== expected) problems.push(`${name}: the event id was ${outcome.eventId}, not ${expected}`)
  if (accepted.has(outcome.eventId)) repeated += 1
  accepted.set(outcome.eventId, reading)
}

/** Kills hops spread over the whole run, each while readings are on their way. */
async function killAll(): Promise<void> {
  for (const name of kills) {
    while (accepted.size < share * (killed + 1)) await new Promise((resolve) => setTimeout(resolve, 5))
    await hops.kill(name)
    killed += 1
    say(`${accepted.size} of ${facts} accepted: ${name} was killed (${killed} of ${kills.length})`)
  }
}

function shuffle(list: HopName[]): HopName[] {
  return list
    .map((name) => [random.next(), name] as const)
    .toSorted(([a], [b]) => a - b)
    .map(([, name]) => name)
}

/** What is in the table and should not be, or the other way round. */
async function check(): Promise<void> {
  const { rows } = await hops.db.query('select meter, at::int as at, value from reading')
  const rowOf = new Map((rows as Reading[]).map((row) => [factId(readings.ReadingTaken, readingKey(row)), row]))
  for (const [eventId, { meter, at, value }] of accepted) {
    const row = rowOf.get(eventId)
    if (row === undefined) problems.push(`${meter} ${at} was accepted and is missing`)
    else if (row.value !== value) problems.push(`${meter} ${at} has the value ${row.value}, not ${value}`)
  }
  for (const [eventId, { meter, at }] of rowOf) if (!accepted.has(eventId)) problems.push(`${meter} ${at} was never accepted`)
  const effects = await hops.db.query('select event_id::text as id, count(*)::int as times from reading_effect group by 1')
  const timesOf = new Map((effects.rows as { id: string; times: number }[]).map(({ id, times }) => [id, times]))
  for (const eventId of accepted.keys())
    if (timesOf.get(eventId) !== 1) problems.push(`${eventId} took effect ${timesOf.get(eventId) ?? 0} times`)
  for (const eventId of timesOf.keys()) if (!accepted.has(eventId)) problems.push(`${eventId} took effect and was never accepted`)
}

async function arrived(): Promise<number> {
  const { rows } = await hops.db.query('select count(*)::int as n from reading')
  return (rows[0] as { n: number }).n
}

await Promise.all([killAll(), ...Array.from({ length: clients }, (_, i) => sendAll(i % 4 === 0 ? 20 : 1))])
const deadline = performance.now() + patienceMs
while ((await arrived()) < accepted.size && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 50))
await check()
const [sample] = accepted.values()
if (sample !== undefined && problems.length === 0 && !(await client.processed(readingKey(sample))))
  problems.push(`${sample.meter} ${sample.at} is in the table, and the service says that it was not processed`)

say(`${accepted.size} business keys accepted by ${requests} requests; ${repeated} were sent again after that.`)
say(
  problems.length === 0
    ? `The table agrees: ${accepted.size} rows, none missing, none double.`
    : problems.slice(0, 20).join('\n'),
)
process.exitCode = problems.length === 0 ? 0 : 1
await hops.stop()
