import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { expect, test, vi } from 'vitest'
import { createSignals, defaultSignals, type SignalName } from './signals.ts'

const started = { service: 'relay' }

test('a signal reaches everybody who asked for it, in order, and nobody else', () => {
  const signals = createSignals()
  const heard: string[] = []
  signals.on('service.started', ({ service }, name) => heard.push(`first ${name} ${service}`))
  signals.on('service.started', () => heard.push('second'))
  signals.on('service.stopped', () => heard.push('another name'))
  signals.onAny((_event, name) => heard.push(`any ${name}`))
  createSignals().onAny(() => heard.push('another bus'))
  signals.emit('service.started', started)
  expect(heard).toEqual(['first service.started relay', 'second', 'any service.started'])
})

test('a subscriber that throws is reported and disturbs neither the others nor the caller', () => {
  const signals = createSignals()
  const error = new Error('broken logger')
  const heard: string[] = []
  const failures: unknown[] = []
  signals.on('signals.failed', (event) => failures.push(event))
  signals.on('service.started', () => {
    throw error
  })
  signals.on('service.started', () => heard.push('after'))
  signals.onAny((_event, name) => heard.push(name))
  signals.emit('service.started', started)
  expect(heard).toEqual(['signals.failed', 'after', 'service.started'])
  expect(failures).toEqual([{ signal: 'service.started', error }])
})

test('an asynchronous subscriber that rejects is reported and not left unhandled', async () => {
  const signals = createSignals()
  const failed = new Promise((resolve) => signals.on('signals.failed', resolve))
  // oxlint-disable-next-line typescript/no-misused-promises -- that somebody does this is the case under test
  signals.on('service.started', async () => await Promise.reject(new Error('late')))
  signals.emit('service.started', started)
  expect(await failed).toMatchObject({ signal: 'service.started', error: { message: 'late' } })
})

test('a subscriber of failures that fails itself does not go round in circles', () => {
  const signals = createSignals()
  const listener = vi.fn<() => void>(() => {
    throw new Error('again')
  })
  signals.onAny(listener)
  signals.on('signals.failed', listener)
  signals.emit('service.started', started)
  expect(listener).toHaveBeenCalledTimes(3)
})

test('ending a subscription ends that one alone, however often it is ended', () => {
  const signals = createSignals()
  const [twice, any, other] = [vi.fn<() => void>(), vi.fn<() => void>(), vi.fn<() => void>()]
  const end = [signals.on('service.started', twice), signals.onAny(any)]
  signals.on('service.started', twice)
  signals.onAny(any)
  signals.on('service.started', other)
  signals.onAny(other)
  for (const stop of [...end, ...end]) stop()
  signals.emit('service.started', started)
  expect([twice, any, other].map((each) => each.mock.calls.length)).toEqual([1, 1, 2])
})

test.each([
  ['on', (signals: ReturnType<typeof createSignals>, listener: () => void) => signals.on('service.started', listener)],
  ['onAny', (signals: ReturnType<typeof createSignals>, listener: () => void) => signals.onAny(listener)],
])('%s: who leaves or comes during a signal does not make others miss it or hear it twice', (_how, listen) => {
  const signals = createSignals()
  const heard: string[] = []
  const stop = listen(signals, () => {
    heard.push('leaves')
    stop()
    listen(signals, () => heard.push('newcomer'))
  })
  listen(signals, () => heard.push('stays'))
  signals.emit('service.started', started)
  expect(heard).toEqual(['leaves', 'stays'])
  signals.emit('service.started', started)
  expect(heard).toEqual(['leaves', 'stays', 'stays', 'newcomer'])
})

test('every signal of every bus is published on its diagnostics channel', () => {
  const heard: unknown[] = []
  const listener = (message: unknown, name: string | symbol): void => void heard.push([name, message])
  subscribe('waybill:service.started', listener)
  createSignals().emit('service.started', started)
  defaultSignals.emit('service.started', started)
  unsubscribe('waybill:service.started', listener)
  createSignals().emit('service.started', started)
  expect(heard).toEqual([
    ['waybill:service.started', started],
    ['waybill:service.started', started],
  ])
})

test('a channel subscribed to after the first emit is heard as well', () => {
  const signals = createSignals()
  signals.emit('service.started', started)
  const listener = vi.fn<() => void>()
  subscribe('waybill:service.started', listener)
  signals.emit('service.started', started)
  unsubscribe('waybill:service.started', listener)
  expect(listener).toHaveBeenCalledTimes(1)
})

test('a name that every object inherits is no signal that anybody hears', () => {
  const signals = createSignals()
  expect(() => signals.emit('constructor' as SignalName, {} as never)).not.toThrow()
})
