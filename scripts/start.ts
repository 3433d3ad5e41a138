/**
 * `npm start`: a small live system on embedded parts (see live-system.ts), its counts once a second, and its verdict at the end.
 *
 * `--for 30s` stops by itself after that time; `--json` prints one line with the verdict, and the rest on standard error. The
 * exit code is 0 if every committed event was applied, once, in order.
 */
import { parseArgs } from 'node:util'
import { systemClock } from '../src/core/clock.ts'
import { startPubsubServer } from '../src/pubsub-server/pubsub-server.ts'
import { startPostgres } from '../src/testing/embedded-postgres.ts'
import { startLiveSystem, type Counts } from './live-system.ts'

const { values } = parseArgs({ options: { for: { type: 'string' }, json: { type: 'boolean', default: false } } })
const forMs = values.for === undefined ? undefined : milliseconds(values.for)
const say = (line: string): void => void (values.json ? process.stderr : process.stdout).write(`${line}\n`)
const stop = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort())

const startedAt = performance.now()
const postgres = await startPostgres()
const server = await startPubsubServer()
try {
  const videoUrl = await postgres.createDatabase('video')
  const catalogUrl = await postgres.createDatabase('catalog')
  const system = await startLiveSystem({ videoUrl, catalogUrl, server })
  const readyMs = Math.round(performance.now() - startedAt)
  say(`Ready after ${readyMs} ms: a video service writes, a relay publishes, a catalog follows, over a broker on a bad day.`)
  say(`  video service  ${videoUrl}`)
  say(`  catalog        ${catalogUrl}`)
  say(`  Pub/Sub        PUBSUB_EMULATOR_HOST=${server.emulatorHost}`)
  say(`  look inside    npx node src/cli/main.ts outbox status --service video --database-url ${videoUrl}`)
  say(forMs === undefined ? 'Ctrl-C stops it and removes its files.' : `It stops by itself after ${values.for}.`)
  const endsAt = performance.now() + (forMs ?? Number.POSITIVE_INFINITY)
  while (!stop.signal.aborted && performance.now() < endsAt) {
    await systemClock.sleep(Math.min(1_000, endsAt - performance.now()), stop.signal)
    say(show(await system.counts()))
  }
  const counts = await system.finish(30_000)
  const verdict = isWell(counts) ? 'ok' : 'violated'
  say(`${show(counts)}: ${verdict}`)
  if (values.json) process.stdout.write(`${JSON.stringify({ verdict, readyMs, ...counts, faults: server.faults.fired })}\n`)
  process.exitCode = verdict === 'ok' ? 0 : 1
} finally {
  await server.stop()
  await postgres.stop()
}

function isWell({ committed, applied, doubled, wentBack, different }: Counts): boolean {
  return committed > 0 && applied === committed && doubled === 0 && wentBack === 0 && different === 0
}

function show({ committed, published, applied, doubled, wentBack }: Counts): string {
  return `committed ${committed}  published ${published}  applied ${applied}  doubled ${doubled}  went back ${wentBack}`
}

function milliseconds(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m)$/.exec(text)
  if (match === null) throw new Error(`--for ${text}: write a number and ms, s or m, such as 3s.`)
  return Number(match[1]) * ({ ms: 1, s: 1_000, m: 60_000 }[match[2] ?? ''] ?? 1)
}
