/**
 * Runs before `npm publish`: refuses while package.json names no repository, which is the one place that says the public address on which
 * provenance, security advisories and the readers of the package depend. Nothing is made up in its stead.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { repositoryRoot } from './run-command.ts'

const [, , folder = repositoryRoot] = process.argv
const manifest = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as { readonly repository?: unknown }
const { repository } = manifest
const url = typeof repository === 'string' ? repository : (repository as { readonly url?: unknown } | undefined)?.url
// npm compares it with the address that the provenance is signed for: a short form or an address without a host would be refused late.
if (typeof url !== 'string' || !/^(?:git\+)?https:\/\/[\w-]+(?:\.[\w-]+)+\/[\w.-]+\/[\w.-]+$/.test(url)) {
  console.error(
    'Not published: package.json needs "repository" with the public address of this repository, such as { "type": "git", "url": "git+https://<host>/<owner>/<name>.git" }.',
  )
  process.exitCode = 1
}
