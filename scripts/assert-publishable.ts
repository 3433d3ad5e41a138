/**
 * Runs before the packages are published: refuses while package.json names no repository, which is the one place that says the public
 * address on which provenance, security advisories and the readers of the packages depend. Nothing is made up in its stead. Refuses
 * packages of different versions as well: a tag releases all of them under one version.
 */
import { globSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { repositoryRoot } from './run-command.ts'

interface Manifest {
  readonly name?: string
  readonly version?: string
  readonly repository?: unknown
  readonly peerDependencies?: Readonly<Record<string, string>>
}

const [, , folder = repositoryRoot] = process.argv
const manifest = await read('package.json')
const { repository, version, peerDependencies = {} } = manifest
const url = typeof repository === 'string' ? repository : (repository as { readonly url?: unknown } | undefined)?.url
// npm compares it with the address that the provenance is signed for: a short form or an address without a host would be refused late.
if (typeof url !== 'string' || !/^(?:git\+)?https:\/\/[\w-]+(?:\.[\w-]+)+\/[\w.-]+\/[\w.-]+$/.test(url)) {
  refuse(
    'package.json needs "repository" with the public address of this repository, such as { "type": "git", "url": "git+https://<host>/<owner>/<name>.git" }.',
  )
}
for (const path of globSync('packages/*/package.json', { cwd: folder })) {
  const { name = '', version: own } = await read(path)
  if (own !== version || peerDependencies[name] !== `^${version}`)
    refuse(`${path} needs the version ${version}, and package.json the peer dependency "${name}": "^${version}".`)
}

async function read(path: string): Promise<Manifest> {
  return JSON.parse(await readFile(join(folder, path), 'utf8')) as Manifest
}

function refuse(problem: string): void {
  console.error(`Not published: ${problem}`)
  process.exitCode = 1
}
