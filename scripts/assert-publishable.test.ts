/** Publishing without a public address is refused (the packages as they are, and every address that is none), and so are different versions. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { runCommand } from './run-command.ts'

async function publishing(manifest: object, other?: object): Promise<number> {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-publishing-'))
  try {
    await writeFile(join(folder, 'package.json'), JSON.stringify(manifest))
    await mkdir(join(folder, 'packages/server'), { recursive: true })
    if (other !== undefined) await writeFile(join(folder, 'packages/server/package.json'), JSON.stringify(other))
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

test('packages are published under one version, which the main package asks for', async () => {
  const main = (peer: string): object => ({
    version: '1.2.0',
    repository: 'https://code.example.org/owner/name',
    peerDependencies: { server: peer },
  })
  expect(await publishing(main('^1.2.0'), { name: 'server', version: '1.2.0' })).toBe(0)
  expect(await publishing(main('^1.2.0'), { name: 'server', version: '1.1.0' })).toBe(1)
  expect(await publishing(main('^1.1.0'), { name: 'server', version: '1.2.0' })).toBe(1)
})
