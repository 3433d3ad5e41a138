import { expect, test } from 'vitest'
import { createSignals } from '../../core/signals.ts'
import type { CommandDefinition } from './command.ts'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { createRequestIds } from './request-ids.ts'

test('a client that sends no ids is seen among thousands of invented ones', () => {
  const ids = createRequestIds({ phase: 'optional', clock: createFakeClock(), signals: createSignals() })
  const transfer = { name: 'transfer' } as CommandDefinition
  for (let i = 0; i < 1_000; i += 1) ids.allowMissing(transfer, `invented ${i}`)
  for (let i = 0; i < 5_000; i += 1) {
    ids.allowMissing(transfer, `invented again ${i}`)
    if (i % 100 === 0) ids.allowMissing(transfer, 'the old app')
  }
  const missing = ids.missing()
  expect(missing.find(({ client }) => client === 'the old app')).toMatchObject({ command: 'transfer', count: 50 })
  expect(missing.reduce((sum, { count }) => sum + count, 0)).toBe(6_050)
  expect(missing.length).toBeLessThanOrEqual(1_001)
})

test('a name of many kilobytes is kept and told by its beginning alone', () => {
  const signals = createSignals()
  const told: string[] = []
  signals.on('command.request-id-missing', ({ client }) => void told.push(client))
  const ids = createRequestIds({ phase: 'optional', clock: createFakeClock(), signals })
  for (const tail of ['x', 'y'])
    ids.allowMissing({ name: 'transfer' } as CommandDefinition, `the old app ${tail.repeat(200)}`.padEnd(15_000, tail))
  expect(ids.missing().map(({ client }) => client.length)).toEqual([200, 200])
  expect(told.map((client) => client.length)).toEqual([200, 200])
})
