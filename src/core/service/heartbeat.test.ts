import { expect, test } from 'vitest'
import { createFakeClock } from '../../testing/kit/fake-clock.ts'
import { createPulse } from './heartbeat.ts'

const never = new AbortController().signal

test('its age is the time since the last pass ended, by success or by failure', async () => {
  const clock = createFakeClock()
  const pulse = createPulse(clock)
  const ok = pulse.around(async () => 'idle')
  const bad = pulse.around(async () => {
    throw new Error('no database')
  })
  await pulse.during(async () => {
    await clock.advance(70)
    expect(pulse.ageMs()).toBe(70)
    await ok(never)
    expect(pulse.ageMs()).toBe(0)
    await clock.advance(30)
    await expect(bad(never)).rejects.toThrow('no database')
    expect(pulse.ageMs()).toBe(0)
  })
})

test('while nothing runs it has no age, also after a failure', async () => {
  const pulse = createPulse(createFakeClock())
  expect(pulse.ageMs()).toBeUndefined()
  await expect(pulse.during(() => Promise.reject(new Error('ended')))).rejects.toThrow('ended')
  expect(pulse.ageMs()).toBeUndefined()
})
