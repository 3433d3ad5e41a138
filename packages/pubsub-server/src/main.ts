#!/usr/bin/env node
/**
 * `npx waybill-pubsub-server`: the server as a process of its own. It prints its addresses, and stops at SIGINT or SIGTERM.
 */
import { parseArgs } from 'node:util'
import { startPubsubServer } from './pubsub-server.ts'
import type { PubsubServerOptions } from './pubsub-server.ts'

const help = `Usage: waybill-pubsub-server [options]

Serves the Pub/Sub protocol locally. Official clients use it through PUBSUB_EMULATOR_HOST, which it prints. Faults are
switched on and off over HTTP at the admin address.

  --host <address>      where to listen [127.0.0.1]
  --port <port>         the port of the protocol; 0 takes a free one [8085]
  --admin-port <port>   the port of the admin address [a free one]
  --data-dir <folder>   keep what was confirmed across restarts [in memory only]
  --fsync               with --data-dir: survive the loss of power too
  --help                print this`

process.exitCode = await main()

async function main(): Promise<number> {
  let options: PubsubServerOptions | undefined
  try {
    options = readOptions()
  } catch (error) {
    return fail(error, 2)
  }
  if (options === undefined) {
    console.log(help)
    return 0
  }
  try {
    const server = await startPubsubServer(options)
    console.log(`PUBSUB_EMULATOR_HOST=${server.emulatorHost}\nFaults: ${server.adminUrl}`)
    await new Promise((stop) => process.once('SIGINT', stop).once('SIGTERM', stop))
    await server.stop()
    return 0
  } catch (error) {
    return fail(error, 1)
  }
}

/** Undefined where only the help is asked for. */
function readOptions(): PubsubServerOptions | undefined {
  const text = { type: 'string' } as const
  const flag = { type: 'boolean' } as const
  const { values } = parseArgs({
    options: { host: text, port: text, 'admin-port': text, 'data-dir': text, fsync: flag, help: flag },
  })
  if (values.help === true) return undefined
  const { host = '127.0.0.1', fsync = false, 'data-dir': dataDir } = values
  if (fsync && dataDir === undefined) throw new Error('--fsync needs --data-dir: without it nothing is written.')
  const adminPort = portOf('admin-port', values['admin-port'], 0)
  return { host, port: portOf('port', values.port, 8085), adminPort, ...(dataDir === undefined ? {} : { dataDir, fsync }) }
}

function portOf(option: string, given: string | undefined, fallback: number): number {
  if (given === undefined) return fallback
  if (/^\d{1,5}$/.test(given) && Number(given) <= 65_535) return Number(given)
  throw new Error(`--${option}: expected a port from 0 to 65535, not "${given}".`)
}

function fail(error: unknown, code: number): number {
  console.error(error instanceof Error ? error.message : String(error))
  return code
}
