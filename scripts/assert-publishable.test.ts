/** Publishing without a public address is refused: the package as it is, and every address that is none. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { runCommand } from './run-command.ts'

async function publishing(manifest: object): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-publishing-'))
  try {
    await writeFile(join(folder, 'package.json'), JSON.stringify(manifest))
    return (await runCommand(['node', 'scripts/assert-publishable.ts', folder])).code ?? -1
  } finally {
    await rm(folder, { recursive: true })
  }
}

test('a package without a public address, or with one that is none, is not published; with one it is', async () => {
  const named = (url: string): object => ({ repository: { type: 'git', url } })
  const refused = [
    {},
    { repository: '' },
    { repository: 'someone/waybill' },
    named('git+https://localhost/a/b.git'),
    named('git@host.example:a/b.git'),
  ]
  for (const manifest of refused) expect([manifest, await publishing(manifest)]).toEqual([manifest, 1])
  expect(await publishing(named('git+https://code.example.org/owner/name.git'))).toBe(0)
  expect(await publishing({ repository: 'https://code.example.org/owner/name' })).toBe(0)
})
