/**
 * The life of a service that runs as a child process: PgBouncer, Redis.
 *
 * It has a folder of its own, says on its output when it is ready, can be killed or frozen, and is gone, files
 * included, after `stop` or when the parent dies. PostgreSQL has its own module, because it stops in more ways.
 */
import { spawn } from 'node:child_process'
import { chownSync, closeSync, openSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'

import { WaybillError } from '../../core/errors.ts'
import { temporaryFolder } from './cache-folder.ts'
import { eventually } from '../kit/eventually.ts'
import { serviceUser } from './service-user.ts'
import { startWatchdog } from './watchdog.ts'

/** What to run. */
export interface ServiceCommand {
  readonly name: string
  readonly program: string
  /** Makes the arguments; it may write files into the folder. */
  readonly prepare: (folder: string) => readonly string[]
  /** What the log says when the service takes connections. */
  readonly readyText: string
}

/** A running service. */
export interface ServiceProcess {
  readonly pid: number
  readonly logFile: string
  /** Stops the process as a frozen machine would: its sockets stay open and nobody answers. */
  freeze(): void
  /** Lets a frozen process go on. */
  thaw(): void
  /** Ends the process by SIGKILL and leaves its files. */
  kill(): Promise<void>
  /** Ends the process and removes its files. */
  stop(): Promise<void>
}

/** Starts the service and returns when it is ready. */
export async function startService({ name, program, prepare, readyText }: ServiceCommand): Promise<ServiceProcess> {
  const user = serviceUser()
  const folder = temporaryFolder(`waybill-${name}-`)
  if (user !== undefined) chownSync(folder, user.uid, user.gid)
  const logFile = join(folder, 'service.log')
  const log = openSync(logFile, 'a')
  const watchdog = startWatchdog({ folders: [folder], signal: 'KILL', user })
  const child = spawn(program, prepare(folder), { ...user, cwd: folder, detached: true, stdio: ['ignore', log, log] })
  closeSync(log)
  child.unref()
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()).once('error', () => resolve()))
  watchdog.watch(child)

  const hasEnded = (): boolean => child.pid === undefined || child.exitCode !== null || child.signalCode !== null
  const kill = async (): Promise<void> => {
    if (hasEnded()) return
    child.ref()
    child.kill('SIGKILL')
    await exited
  }
  const stop = async (): Promise<void> => {
    await kill()
    watchdog.dismiss()
    await rm(folder, { recursive: true, force: true })
  }

  const readLog = (): string => readFileSync(logFile, 'utf8')
  const isReady = (): boolean => readLog().includes(readyText)
  await eventually(() => hasEnded() || isReady(), { intervalMs: 5 }).catch(kill)
  if (child.pid === undefined || hasEnded()) {
    const end = readLog().slice(-2_000)
    await stop()
    throw new WaybillError('UNAVAILABLE', `${name} did not start (${program}). The end of its log:\n${end}`)
  }
  const signal = (which: 'SIGSTOP' | 'SIGCONT') => (): void => void child.kill(which)
  return { pid: child.pid, logFile, freeze: signal('SIGSTOP'), thaw: signal('SIGCONT'), kill, stop }
}
