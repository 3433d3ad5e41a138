/** The program of the package: it serves where it says, stops when told, and refuses what it cannot do. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

const program = fileURLToPath(new URL('../src/main.ts', import.meta.url))

test('the server says where it serves and where faults are switched, and stops at SIGTERM', async () => {
  const child = spawn(process.execPath, [program, '--port', '0'])
  const [chunk] = (await once(child.stdout, 'data')) as [Buffer]
  const said = chunk.toString()
  expect(said).toMatch(/^PUBSUB_EMULATOR_HOST=127\.0\.0\.1:\d+\nFaults: http:\/\/127\.0\.0\.1:\d+\n$/)
  const faults = await fetch(`${said.split('Faults: ')[1]?.trim()}/faults`)
  expect(await faults.json()).toMatchObject({ options: {} })
  child.kill('SIGTERM')
  expect(await once(child, 'exit')).toEqual([0, null])
})

test.each([
  ['--port 99999', 2, '--port: expected a port'],
  ['--fsync --port 0', 2, '--fsync needs --data-dir'],
  ['--prot 0', 2, '--prot'],
  ['--host 192.0.2.1 --port 0', 1, 'cannot listen on 192.0.2.1'],
])('%s is refused', async (line, code, message) => {
  const child = spawn(process.execPath, [program, ...line.split(' ')])
  const [said] = await Promise.all([text(child.stderr), once(child, 'exit')])
  expect(said).toContain(message)
  expect(child.exitCode).toBe(code)
})
