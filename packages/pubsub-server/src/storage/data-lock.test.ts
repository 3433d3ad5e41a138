import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { uncaughtDuring } from '../../../../test/setup/ending-server.ts'
import { lockData, lockPath } from './data-lock.ts'

test('a client that says something to the lock of a data folder, and is gone or stays, neither ends the process nor keeps the lock', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-lock-'))
  const uncaught = await uncaughtDuring(async () => {
    const lock = await lockData(folder)
    const path = await lockPath(folder)
    const guests = Array.from({ length: 50 }, (_, n) => {
      const guest = connect(path).on('error', () => {})
      guest.write('hello')
      if (n % 2 === 0) guest.on('connect', () => guest.destroy())
      return guest
    })
    await Promise.all(guests.map(async (guest) => guest.pending && (await once(guest, 'connect'))))
    await lock.release()
    for (const guest of guests) guest.destroy()
  })
  await rm(folder, { recursive: true })
  expect(uncaught.map(String)).toEqual([])
})
