import { createServer, type Server } from 'node:net'
import { expect, test } from 'vitest'
import { onFreePort, onFreePorts } from './free-port.ts'

function listen(port: number): Promise<Server> {
  const server = createServer()
  return new Promise((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', () => resolve(server)))
}

test('a service whose port is taken before it starts is started on another', async () => {
  const thieves: Server[] = []
  const service = await onFreePort(async (port) => {
    if (thieves.length < 2) thieves.push(await listen(port))
    return await listen(port)
  })
  expect(thieves).toHaveLength(2)
  for (const server of [service, ...thieves]) server.close()
})

test('it is not tried for ever, nor when it fails for another reason', async () => {
  let starts = 0
  const failing = (message: string) => (): Promise<never> => {
    starts += 1
    return Promise.reject(new Error(message))
  }
  await expect(onFreePort(failing('bind: Address already in use'))).rejects.toThrow('Address already in use')
  expect(starts).toBe(5)
  await expect(onFreePort(failing('no such file'))).rejects.toThrow('no such file')
  expect(starts).toBe(6)
})

test('no two ports of a service are equal', async () => {
  // So many that two of them would be, if they were merely chosen one after the other.
  const ports = await onFreePorts(500, (free) => Promise.resolve(free))
  expect(new Set(ports).size).toBe(500)
})
