/**
 * Ends a service whose parent died without ending it.
 *
 * A shell waits for the end of its input, which only the parent holds: the kernel closes it however the parent ends,
 * SIGKILL included. Then the shell stops the service and removes its files. It stands in a session of its own, so
 * that Ctrl-C does not end it before its work. Windows has no such shell; there the service is ended on exit only.
 */
import { spawn } from 'node:child_process'

import type { ServiceUser } from './service-user.ts'

/** What is to be ended, and how. */
export interface Watched {
  /** Removed when the service is gone. */
  readonly folders?: readonly string[]
  readonly signal: 'QUIT' | 'KILL' | 'TERM'
  readonly user?: ServiceUser | undefined
}

/** What a child process says of itself. */
export interface WatchedProcess {
  readonly pid?: number | undefined
  once(event: 'exit', listener: () => void): unknown
}

/** A handle on the shell that outlives the parent. */
export interface Watchdog {
  /** Names the process to end; a restarted service is named anew. Once it has ended, its number may be another's, and nothing is ended. */
  watch(child: WatchedProcess): void
  /** Calls the watch off: the parent has cleaned up itself. */
  dismiss(): void
}

// A zombie that nobody reaps still answers to signals, hence the bound on the wait. Another child of the parent may write into
// the folder for a moment longer.
const script = `
signal=$1; shift
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then
  kill -CONT "$pid"; kill -"$signal" "$pid"
  n=0; while kill -0 "$pid" && [ $n -lt 100 ]; do sleep 0.05; n=$((n+1)); done
fi 2>/dev/null
n=0; until rm -rf "$@" || [ $n -ge 100 ]; do sleep 0.05; n=$((n+1)); done 2>/dev/null`

/** Starts the watch; nothing is watched until `watch` names a process. */
export function startWatchdog({ folders = [], signal, user }: Watched): Watchdog {
  if (process.platform === 'win32') return watchExit()
  const shell = spawn('/bin/sh', ['-c', script, 'waybill-watchdog', signal, ...folders], {
    ...user,
    cwd: '/',
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  })
  shell.unref()
  // A watchdog that cannot be started or was killed is a loss of comfort, not of the service.
  shell.on('error', ignore)
  shell.stdin.on('error', ignore)
  unrefStream(shell.stdin)
  return {
    watch: watchWith((pid) => void shell.stdin.write(`${pid}\n`)),
    dismiss: () => void shell.kill('SIGKILL'),
  }
}

/** @param name is told the process id to end, or none */
function watchWith(name: (pid: number | '') => void): Watchdog['watch'] {
  let watched: number | undefined
  return (child) => {
    const { pid } = child
    if (pid === undefined) return
    name((watched = pid))
    child.once('exit', () => {
      if (watched === pid) name('')
    })
  }
}

function watchExit(): Watchdog {
  let watched: number | '' = ''
  const end = (): void => {
    if (watched !== '') process.kill(watched)
  }
  process.once('exit', end)
  return {
    watch: watchWith((pid) => void (watched = pid)),
    dismiss: () => void process.removeListener('exit', end),
  }
}

/** Pipes to a child are sockets underneath, although their type does not say so. */
function unrefStream(stream: object): void {
  if ('unref' in stream && typeof stream.unref === 'function') stream.unref()
}

function ignore(): void {}
