#!/usr/bin/env node
/**
 * The program `waybill`: the only file that touches the process, beside the one that starts it again for `waybill dev`.
 *
 * A command that wants to stop in order asks for the stop signal; from then on the first SIGINT or SIGTERM aborts it and
 * a later one ends the process at once. Other commands die of a signal as usual, and the database rolls them back.
 */
import { userInfo } from 'node:os'
import { runCli } from './run-cli.ts'
import { stopSignal } from './stop-signal.ts'

process.exitCode = await runCli({
  line: process.argv.slice(2),
  env: process.env,
  folder: process.cwd(),
  user: userName(),
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
  stopSignal: () => stopSignal(process),
  isTerminal: process.stdout.isTTY === true,
  program: [process.execPath, ...process.execArgv, process.argv[1] ?? ''],
})
await Promise.all([process.stdout, process.stderr].map(written))
// A connection that does not answer must not keep a process that has nothing more to do.
setTimeout(() => process.exit(), 1_000).unref()

/** Resolves when the reader has all of it; one that went away needs nothing. */
async function written(stream: NodeJS.WriteStream): Promise<void> {
  if (stream.writableLength === 0 || stream.destroyed) return
  await new Promise<void>((done) => stream.write('', () => done()))
}

/** A container may run as a user that has no name. */
function userName(): string {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`
  }
}
