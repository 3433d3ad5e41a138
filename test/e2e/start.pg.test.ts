import { expect, test } from 'vitest'
import { runCommand } from '../../scripts/run-command.ts'

test(
  'npm start runs a live system over a broker on a bad day, and every committed event is applied once',
  { timeout: 240_000 },
  async () => {
    const { code, output } = await runCommand(['node', 'scripts/start.ts', '--for', '4s', '--json'])
    const report = JSON.parse(output.split('\n').find((line) => line.startsWith('{')) ?? '{}') as Record<string, unknown>
    expect(report).toMatchObject({ verdict: 'ok', doubled: 0, wentBack: 0, different: 0 })
    expect(report['applied']).toBe(report['committed'])
    expect(code).toBe(0)
  },
)
