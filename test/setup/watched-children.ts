/**
 * Child processes of a stress test, and every end of them that nobody asked for.
 *
 * One that is killed ends by that signal, and one that is told to stop ends with code 0 after that. Any other end is a violation,
 * with the last words of the child: a process that dies of a fault it should survive is not excused by the next one.
 */
import { startChild, type Child, type ChildOptions, type Exit } from '../../src/testing/process/child.ts'

export interface WatchedChildren {
  /** The ends so far that nobody asked for. */
  readonly violations: readonly string[]
  start(script: URL, options?: ChildOptions): Child
  /** Ends one without a word. */
  kill(child: Child): Promise<void>
  /** Tells one to stop, and waits for its end. */
  stop(child: Child): Promise<void>
}

type Order = 'kill' | 'stop'

export function watchChildren(): WatchedChildren {
  const violations: string[] = []
  const orders = new Map<Child, Order>()
  const watch = async (child: Child): Promise<void> => {
    const exit = await child.exited
    if (!isAsked(exit, orders.get(child)))
      violations.push(
        `process ${child.pid} ended by itself (${exit.signal ?? `code ${exit.code}`}): ${child.stderr.slice(-2_000)}`,
      )
  }
  return {
    violations,
    start: (script, options) => {
      const child = startChild(script, options)
      void watch(child)
      return child
    },
    kill: async (child) => {
      orders.set(child, 'kill')
      await child.kill()
    },
    stop: async (child) => {
      orders.set(child, 'stop')
      child.send('stop')
      await child.exited
    },
  }
}

function isAsked({ code, signal }: Exit, order: Order | undefined): boolean {
  if (order === 'kill') return signal === 'SIGKILL'
  return order === 'stop' && code === 0
}
