/**
 * Runs before `npm publish`: refuses while package.json names no repository, which is the public address that provenance, security
 * advisories and the readers of the package depend on.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { repositoryRoot } from './run-command.ts'

const manifest = JSON.parse(await readFile(join(repositoryRoot, 'package.json'), 'utf8')) as { readonly repository?: unknown }
if (manifest.repository === undefined) {
  console.error('Not published: package.json has no "repository". Set it to the public address of this repository first.')
  process.exitCode = 1
}
