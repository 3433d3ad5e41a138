/** The gate by itself: who gets a place, who waits, who is refused, and that nothing is left behind. */
import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { isWaybillError } from '../../core/errors.ts'
import { createSignals, type Signals } from '../../core/signals.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { createCommandGate, refusalOf, type GateOptions, type Leave, type Passage } from './gate.ts'

interface Asked {
  readonly passage: Passage
  leave?: Leave
  error?: unknown
}

function gateWith(options: Partial<GateOptions> = {}) {
  const clock = createFakeClock()
  const signals = createSignals()
  const told: (Signals['command.queued'] & Partial<Signals['command.refused']> & { readonly name: string })[] = []
  for (const name of ['command.queued', 'command.admitted', 'command.refused'] as const)
    signals.on(name, (event) => void told.push({ name, ...event }))
  const limits = { maxPerAggregate: 2, maxPerPrincipal: 3, maxQueued: 4, queueTimeoutMs: 1_000, markerLockMs: 200 }
  const gate = createCommandGate({ ...limits, signals, clock, ...options })
  /** Asks for places, and looks what has become of it once all that can run has run. */
  const ask = async (principal: string, ids: readonly string[], signal?: AbortSignal): Promise<Asked> => {
    const asked: Asked = { passage: { command: 'Pay', principal, requestId: undefined, signal, waitedMs: 0 } }
    const entering = Promise.resolve().then(() =>
      gate.enter(
        asked.passage,
        ids.map((id) => ({ type: 'account', id })),
      ),
    )
    void entering.then(
      (leave) => (asked.leave = leave),
      (error: unknown) => (asked.error = error),
    )
    await turn()
    return asked
  }
  return { gate, clock, told, ask }
}

const leaveAll = (...all: readonly Asked[]): void => all.forEach(({ leave }) => leave?.())
const isIn = ({ leave }: Asked): boolean => leave !== undefined

describe('a place', () => {
  test('is taken at once, told to nobody, and leaves nothing behind', () => {
    const { gate, told } = gateWith()
    const passage: Passage = { command: 'Pay', principal: 'ann', requestId: undefined, signal: undefined, waitedMs: 0 }
    const leave = gate.enter(passage, [{ type: 'account', id: 'a' }])
    expect(leave).toBeTypeOf('function')
    expect(gate.size).toBe(2)
    ;(leave as Leave)()
    expect([gate.size, told]).toEqual([0, []])
  })

  test('of an aggregate is given in the order of arrival, across principals', async () => {
    const { gate, ask } = gateWith()
    const [first, second, third, fourth] = [
      await ask('p1', ['a']),
      await ask('p2', ['a']),
      await ask('p3', ['a']),
      await ask('p4', ['a']),
    ]
    expect([first, second, third, fourth].map(isIn)).toEqual([true, true, false, false])
    leaveAll(second)
    await turn()
    expect([third, fourth].map(isIn)).toEqual([true, false])
    leaveAll(first, third)
    await turn()
    expect(isIn(fourth)).toBe(true)
    leaveAll(fourth)
    expect(gate.size).toBe(0)
  })

  test('counts once for a command that names an aggregate twice', async () => {
    const { gate, ask } = gateWith({ maxPerAggregate: 1 })
    const asked = await ask('ann', ['a', 'b', 'a'])
    expect(isIn(asked)).toBe(true)
    leaveAll(asked)
    expect(gate.size).toBe(0)
  })

  test('given back twice counts once', async () => {
    const { ask } = gateWith({ maxPerAggregate: 1 })
    const [first, second, third] = [await ask('p1', ['a']), await ask('p2', ['a']), await ask('p3', ['a'])]
    leaveAll(first, first)
    await turn()
    expect([second, third].map(isIn)).toEqual([true, false])
  })
})

describe('a hot aggregate', () => {
  test('makes no command of other aggregates wait, of the same principal either', async () => {
    const { ask, told } = gateWith({ maxPerPrincipal: 3 })
    const hot = []
    for (let i = 0; i < 6; i += 1) hot.push(await ask('ann', ['hot']))
    expect(hot.filter(isIn)).toHaveLength(2)
    const queued = told.length
    const [own, others] = [await ask('ann', ['calm']), await ask('bob', ['calm'])]
    expect([own, others].map(isIn)).toEqual([true, true])
    expect(told).toHaveLength(queued)
  })

  test('gives its next place to a command that then goes before the others of its principal', async () => {
    const { ask } = gateWith({ maxPerAggregate: 1, maxPerPrincipal: 2 })
    const [holder, waiting] = [await ask('bob', ['hot']), await ask('ann', ['hot'])]
    const busy = [await ask('ann', ['x']), await ask('ann', ['y'])]
    const late = await ask('ann', ['z'])
    expect([waiting, ...busy, late].map(isIn)).toEqual([false, true, true, false])
    leaveAll(holder)
    await turn()
    expect(isIn(waiting)).toBe(false)
    leaveAll(busy[0] as Asked)
    await turn()
    expect([waiting, late].map(isIn)).toEqual([true, false])
  })
})

describe('a busy principal', () => {
  test('keeps no place of an aggregate that others want while it waits for its own turn', async () => {
    const { ask } = gateWith({ maxPerPrincipal: 2, maxPerAggregate: 1 })
    await ask('mallory', ['x'])
    await ask('mallory', ['y'])
    expect(isIn(await ask('mallory', ['shared']))).toBe(false)
    expect(isIn(await ask('bob', ['shared']))).toBe(true)
  })
})

describe('what is beyond the bounds', () => {
  test('is refused at once where the line is full, as OVERLOADED that may be repeated', async () => {
    const { ask, told } = gateWith({ maxQueued: 1 })
    for (const who of ['p1', 'p2', 'p3']) await ask(who, ['hot'])
    const beyond = await ask('p4', ['hot'])
    expect(beyond.error).toMatchObject({ code: 'OVERLOADED', retryable: true })
    expect(refusalOf(new Error('wrapped', { cause: beyond.error }))).toBe(beyond.error)
    expect(told.at(-1)).toEqual({
      name: 'command.refused',
      command: 'Pay',
      principal: 'p4',
      at: 'aggregate',
      reason: 'full',
      waiting: 1,
      waitedMs: 0,
    })
  })

  test('is refused when the time of all its waits together is over', async () => {
    const { gate, ask, clock, told } = gateWith({ maxPerAggregate: 1, maxPerPrincipal: 1 })
    const [ann, bob] = [await ask('ann', ['x']), await ask('bob', ['hot'])]
    const late = await ask('ann', ['hot'])
    await clock.advance(600)
    leaveAll(ann)
    await turn()
    await clock.advance(399)
    expect(late.error).toBeUndefined()
    await clock.advance(1)
    expect(late.error).toMatchObject({ code: 'OVERLOADED' })
    expect(told.at(-1)).toMatchObject({ name: 'command.refused', reason: 'late', at: 'aggregate', waitedMs: 1_000, waiting: 0 })
    leaveAll(bob)
    expect(gate.size).toBe(0)
  })

  test('gives its places back: those of the aggregates that it had, too', async () => {
    const { gate, ask, clock } = gateWith({ maxPerAggregate: 1 })
    const hot = await ask('bob', ['z'])
    const both = await ask('ann', ['a', 'z'])
    const behind = await ask('cyd', ['a'])
    expect([both, behind].map(isIn)).toEqual([false, false])
    await clock.advance(1_000)
    expect(both.error).toMatchObject({ code: 'OVERLOADED' })
    expect(isIn(behind)).toBe(true)
    leaveAll(hot, behind)
    expect([gate.size, clock.sleepers()]).toEqual([0, 0])
  })

  test('leaves the line when its caller gives up, as ABORTED, and the next one moves up', async () => {
    const { gate, ask, told } = gateWith({ maxPerAggregate: 1, maxQueued: 1 })
    const holder = await ask('bob', ['hot'])
    const caller = new AbortController()
    const gone = await ask('ann', ['hot'], caller.signal)
    caller.abort()
    await turn()
    expect(gone.error).toMatchObject({ code: 'ABORTED' })
    expect(told.at(-1)).toMatchObject({ name: 'command.refused', reason: 'aborted', waiting: 0 })
    const next = await ask('cyd', ['hot'])
    expect(next.error).toBeUndefined()
    leaveAll(holder)
    await turn()
    expect(isIn(next)).toBe(true)
    expect((await ask('dan', ['hot'], AbortSignal.abort())).error).toMatchObject({ code: 'ABORTED' })
    leaveAll(next)
    expect(gate.size).toBe(0)
  })
})

test('whatever comes and goes, the bounds hold, some command always gets on, and in the end nothing is left', async () => {
  const request = fc.record({
    principal: fc.constantFrom('p1', 'p2', 'p3'),
    ids: fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'd'), { maxLength: 3 }),
    leaves: fc.nat({ max: 9 }),
    givesUp: fc.boolean(),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(request, { minLength: 1, maxLength: 25 }), async (requests) => {
      const { gate, ask } = gateWith({ maxQueued: 100 })
      const open: {
        readonly principal: string
        readonly ids: readonly string[]
        readonly asked: Asked
        readonly caller: AbortController
      }[] = []
      const given: unknown[] = []
      const inside = () => open.filter(({ asked }) => isIn(asked))
      const assertBounds = (): void => {
        for (const key of ['p1', 'p2', 'p3'])
          expect(inside().filter(({ principal }) => principal === key).length).toBeLessThanOrEqual(3)
        for (const key of ['a', 'b', 'c', 'd'])
          expect(inside().filter(({ ids }) => ids.includes(key)).length).toBeLessThanOrEqual(2)
        expect(inside().length).toBeGreaterThanOrEqual(Math.min(1, open.length))
      }
      const end = async (index: number): Promise<void> => {
        const [gone] = open.splice(open.indexOf(inside()[index % Math.max(1, inside().length)] as (typeof open)[number]), 1)
        leaveAll(gone?.asked as Asked)
        await turn()
        assertBounds()
      }
      for (const { principal, ids, leaves, givesUp } of requests) {
        const caller = new AbortController()
        open.push({ principal, ids, caller, asked: await ask(principal, ids, caller.signal) })
        assertBounds()
        const waiting = open.find(({ asked }) => !isIn(asked))
        if (givesUp && waiting !== undefined) {
          waiting.caller.abort()
          await turn()
          given.push(waiting.asked.error)
          open.splice(open.indexOf(waiting), 1)
        }
        if (leaves < 4 && open.length > 0) await end(leaves)
      }
      while (open.length > 0) await end(0)
      expect(given.every((error) => isWaybillError(error, 'ABORTED'))).toBe(true)
      expect(gate.size).toBe(0)
    }),
    { numRuns: 200 },
  )
})
