import { expect, test } from 'vitest'
import { runCommand } from './run-command.ts'

test('`npm run map -- --json` walks every path through the files that do its work', async () => {
  const { code, output } = await runCommand(['node', 'scripts/map.ts', '--json'])
  expect({ code, output: code === 0 ? '' : output }).toEqual({ code: 0, output: '' })
  const { paths } = JSON.parse(output.slice(output.indexOf('{'))) as {
    readonly paths: readonly { readonly path: string; readonly changes: number; readonly entered: readonly string[] }[]
  }
  const through = {
    add: ['src/outbox/outbox.ts'],
    relay: ['src/outbox/relay/pass.ts', 'src/transport/pubsub/publish.ts'],
    consume: ['src/consumer/batch/apply-batch.ts', 'src/transport/port/ack-all.ts'],
    'whole chain': ['src/outbox/relay/pass.ts', 'src/consumer/batch/apply-batch.ts', 'src/projection/versioned-upsert.ts'],
    command: ['src/integrations/fetch.ts', 'src/command/pipeline/attempt.ts', 'src/outbox/outbox.ts'],
    redrive: ['src/cli/run-cli.ts', 'src/consumer/operate/redrive.ts'],
  }
  expect(paths.map(({ path }) => path)).toEqual(Object.keys(through))
  for (const { path, changes, entered } of paths) {
    expect(changes).toBeGreaterThan(10)
    expect(entered).toEqual(expect.arrayContaining(through[path as keyof typeof through]))
  }
})
