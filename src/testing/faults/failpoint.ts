/**
 * Named places where a child process dies, hangs or freezes, so that a test can crash it between any two steps.
 *
 * The code under test knows nothing of them: they are wrapped around the ports it is given. A failpoint always tells
 * the parent that it fired before it acts; a test that awaits that report cannot pass without its crash.
 */
import { setImmediate } from 'node:timers/promises'
import { WaybillError } from '../../core/errors.ts'

/**
 * What a failpoint does once it has reported:
 * - `kill`: the process ends by SIGKILL, and no `finally` runs.
 * - `hang`: the call never returns, and the rest of the process goes on.
 * - `freeze`: the process stops by SIGSTOP, and goes on from there when it is thawed.
 * - `throw`: the call fails.
 */
export type FailpointAction = 'kill' | 'hang' | 'freeze' | 'throw'

/** Which failpoint is armed. */
export interface ArmedFailpoint {
  readonly name: string
  readonly action: FailpointAction
  /** Fires when it is hit for the n-th time, and only then. @default 1 */
  readonly onHit?: number
}

/** The places that a process passes. */
export interface Failpoints {
  /** Passes the place; only the armed one does anything. */
  hit(name: string): Promise<void>
}

/** A place around a method of a port. */
export interface FailpointPlace {
  readonly name: string
  readonly method: string
  /** `during`: the call is under way, and its answer was not looked at yet. `failed`: it rejected. */
  readonly when: 'before' | 'during' | 'after' | 'failed'
  /** Which calls are meant, by their arguments; for `failed`, by the error. @default all of them */
  readonly match?: (...args: unknown[]) => boolean
}

/** The environment variable through which `startChild` arms a failpoint. */
export const failpointVariable = 'WAYBILL_FAILPOINT'

/** Makes failpoints; without an armed one, or without a parent that armed it, they do nothing. */
export function createFailpoints(armed: ArmedFailpoint | undefined = armedByParent()): Failpoints {
  let hits = 0
  return {
    async hit(name) {
      if (armed?.name !== name) return
      hits += 1
      if (hits !== (armed.onHit ?? 1)) return
      const reported = report(name)
      // In this very turn: an answer that is on its way stays unread.
      if (armed.action === 'freeze') process.kill(process.pid, 'SIGSTOP')
      await reported
      await act(armed)
    },
  }
}

/** Puts failpoints around methods of a port; `through` names the methods whose results are ports of the same kind. */
export function withFailpoints<Port extends object>(
  port: Port,
  options: { readonly failpoints: Failpoints; readonly places: readonly FailpointPlace[]; readonly through?: readonly string[] },
): Port {
  const { failpoints, places: all, through = [] } = options
  return new Proxy(port, {
    get(target, property) {
      const value: unknown = Reflect.get(target, property, target)
      if (typeof value !== 'function') return value
      const around = all.filter((place) => place.method === property)
      const isThrough = through.includes(String(property))
      if (around.length === 0 && !isThrough) return value.bind(target)
      return async (...args: unknown[]) => {
        const meant = (when: FailpointPlace['when'], given: readonly unknown[] = args): FailpointPlace[] =>
          around.filter((place) => place.when === when && (place.match?.(...given) ?? true))
        const hit = async (places: readonly FailpointPlace[]): Promise<void> => {
          for (const { name } of places) await failpoints.hit(name)
        }
        await hit(meant('before'))
        const call: unknown = Reflect.apply(value, target, args)
        const during = meant('during')
        let result: unknown
        try {
          result = await (during.length === 0 ? call : underWay(call, () => hit(during)))
        } catch (error) {
          await hit(meant('failed', [error]))
          throw error
        }
        await hit(meant('after'))
        return isThrough ? withFailpoints(result as object, options) : result
      }
    },
  })
}

/** The call's result, after `during` was passed. What was asked for has left the process by then, if a connection was open. */
async function underWay(call: unknown, during: () => Promise<void>): Promise<unknown> {
  const settled = Promise.allSettled([call])
  await setImmediate()
  await during()
  await settled
  return await call
}

function armedByParent(): ArmedFailpoint | undefined {
  const text = process.env[failpointVariable]
  return text === undefined ? undefined : (JSON.parse(text) as ArmedFailpoint)
}

/** Returns when the parent's pipe has the report, because a killed process delivers nothing more. */
function report(name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    if (process.send === undefined) return resolve()
    process.send({ failpoint: name }, undefined, {}, (error) => (error === null ? resolve() : reject(error)))
  })
}

async function act({ name, action }: ArmedFailpoint): Promise<void> {
  if (action === 'throw') throw new WaybillError('INTERNAL', `The failpoint "${name}" was told to throw here.`)
  if (action === 'freeze') return
  if (action === 'kill') process.kill(process.pid, 'SIGKILL')
  // Keeps the process alive although nothing in it may be under way.
  setInterval(() => {}, 60_000)
  await new Promise<never>(() => {})
}
