import { expect, test } from 'vitest'
import { runCommand } from './run-command.ts'

test('a choice of long suites that leaves none to run is refused, and says so', async () => {
  const { code, output } = await runCommand(['node', 'scripts/proof.ts', '--ci', 'relay-model'])
  expect([code, output]).toEqual([2, expect.stringContaining('--ci leaves out relay-model')])
})
