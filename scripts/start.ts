/**
 * `npm start`: runs what works so far on embedded parts, says so, and cleans up when it is stopped.
 *
 * `--for 3s` stops by itself after that time; `--json` prints one line that says whether all was well.
 */
import { parseArgs } from 'node:util'
import { systemClock } from '../src/core/clock.ts'
import { connect } from '../src/postgres/connect.ts'
import { assertSchema } from '../src/postgres/deployment.ts'
import { migrate } from '../src/postgres/migrate.ts'
import { startPostgres } from '../src/testing/embedded-postgres.ts'

const names = { schema: 'waybill', service: 'demo' }

const { values } = parseArgs({ options: { for: { type: 'string' }, json: { type: 'boolean', default: false } } })
const forMs = values.for === undefined ? undefined : milliseconds(values.for)
const say = (line: string): void => void (values.json ? process.stderr : process.stdout).write(`${line}\n`)
const stop = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort())

const startedAt = performance.now()
const postgres = await startPostgres()
const db = connect({ url: postgres.url })
try {
  const { applied } = await migrate(db, names)
  await assertSchema(db, names)
  const readyMs = Math.round(performance.now() - startedAt)
  say(`PostgreSQL ${postgres.version} with the schema "${names.schema}" is ready after ${readyMs} ms (${applied.join(', ')}).`)
  say(`  database   ${postgres.url}`)
  say(`  look at it npx node src/cli/main.ts migrate status --database-url ${postgres.url}`)
  say(forMs === undefined ? 'Ctrl-C stops it and removes its files.' : `It stops by itself after ${values.for}.`)
  await untilStopped()
  if (values.json) process.stdout.write(`${JSON.stringify({ ok: true, readyMs, postgres: postgres.version, applied })}\n`)
} finally {
  await db.close()
  await postgres.stop()
}

/** A process that only waits for a signal would end at once: a long sleep keeps it. */
async function untilStopped(): Promise<void> {
  const longestSleepMs = 2 ** 31 - 1
  await systemClock.sleep(forMs ?? longestSleepMs, stop.signal)
}

function milliseconds(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m)$/.exec(text)
  if (match === null) throw new Error(`--for ${text}: write a number and ms, s or m, such as 3s.`)
  return Number(match[1]) * ({ ms: 1, s: 1_000, m: 60_000 }[match[2] ?? ''] ?? 1)
}
