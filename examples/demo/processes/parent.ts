/**
 * The child's end of the channel to the process that keeps it: gets its settings, says that it is ready, and ends with its parent.
 */
import { once } from 'node:events'
import { flushCompileCache } from 'node:module'
import type { Settings } from '../settings.ts'

export interface Parent {
  readonly settings: Settings
  /** Aborts when the parent asks to stop. */
  readonly stopping: AbortSignal
  readonly ready: () => void
}

export async function connectParent(): Promise<Parent> {
  const stop = new AbortController()
  process.once('SIGTERM', () => stop.abort())
  // Ctrl-C reaches the whole group of processes; the parent decides when its children end.
  process.on('SIGINT', () => {})
  process.once('disconnect', () => process.exit(0))
  const [settings] = (await once(process, 'message')) as [Settings]
  const ready = (): void => {
    process.send?.({ ready: true })
    // Node would write it at the end, which a killed process does not live to see.
    flushCompileCache()
  }
  return { settings, stopping: stop.signal, ready }
}
