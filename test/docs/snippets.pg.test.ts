/**
 * What the pages show compiles, and what they say can be run runs as it stands, on a database of its own.
 *
 * README and quick start take nothing for granted: their package.json is what `npm init` makes, changed as the page says. A comment
 * `// prints: …` is held to what the program printed.
 */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { repositoryRoot, runCommand } from '../../scripts/run-command.ts'
import { startChild } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { testDatabase } from '../setup/test-database.ts'
import { pages, type Block } from './pages.ts'
import { givenDeclarations, snippetFolder } from './snippet-folder.ts'

/** Several processes and the compiler, on a machine that may have other work to do. */
const timeout = 240_000

/** Lets a program import `waybill` by its name. */
const hook = join(repositoryRoot, 'scripts/from-source.ts')

const readmePath = /^README\.md$/
const quickStartPath = /^docs\/quick-start\.md$/
const readme = tsBlocks(readmePath)
const quickStart = pages(quickStartPath).flatMap(({ blocks }) => blocks)
const guides = tsBlocks(/^(?!README\.md|docs\/quick-start\.md)/)

describe('programs of the README', () => {
  test.each(readme.map((block, index) => ({ ...block, file: fileOf(block), index })))(
    'number $index runs as printed, and prints what it says',
    { timeout },
    async ({ code, file }) => {
      const db = await testDatabase()
      const folder = await snippetFolder({ [file]: code }, manifestOf(readmePath))
      try {
        const { code: exitCode, output } = await runFromSource(join(folder, file), { DATABASE_URL: db.url })
        expect(output.trimEnd().split('\n')).toEqual(promised(code))
        expect(exitCode).toBe(0)
      } finally {
        await rm(folder, { recursive: true })
      }
    },
  )

  test('show the failure and the mending of it', () => {
    expect(readme).toHaveLength(2)
  })
})

describe('the quick start', () => {
  test('works as printed, command by command', { timeout }, async () => {
    const db = await testDatabase()
    const files = Object.fromEntries(quickStart.flatMap((block) => namedFile(block)))
    const folder = await snippetFolder(files, manifestOf(quickStartPath))
    try {
      for (const step of quickStart.flatMap(commandsOf)) {
        const { command, said } = step
        const { code, output } = await runStep(step, { folder, url: db.url })
        expect(`${command}: ${output}`).toContain(said)
        expect(`${command}: ${code === 0 ? 'ok' : output}`).toBe(`${command}: ok`)
      }
    } finally {
      await rm(folder, { recursive: true })
    }
  })
})

describe('snippets', () => {
  let folder: string
  let output: string

  beforeAll(async () => {
    const named = quickStart.flatMap((block) => namedFile(block)).map(([file, code]) => [`quick-start/${file}`, code])
    folder = await snippetFolder({
      ...Object.fromEntries([...readme, ...guides].map((block) => [fileOf(block), `${block.code}\nexport {}\n`])),
      ...Object.fromEntries(named),
      'given.ts': await givenDeclarations(),
      'streams.ts': `export const videos = globalThis.videos\n`,
      'src/streams.ts': `export const videos = globalThis.videos\n`,
    })
    const result = await runCommand(['tsc', '--noEmit', '-p', folder])
    output = result.output.replaceAll(/^\S*?snippets-\w+\//gm, '')
  }, timeout)
  afterAll(async () => rm(folder, { recursive: true, force: true }))

  test('of every page compile', () => {
    expect(output).toBe('')
  })

  test('are many, and the compiler looks at them', { timeout }, async () => {
    expect(guides.length).toBeGreaterThan(30)
    const broken = await snippetFolder({ 'a.ts': `import { createRelay } from 'waybill'\ncreateRelay({ dbb: 1 })\n` })
    const { code } = await runCommand(['tsc', '--noEmit', '-p', broken])
    await rm(broken, { recursive: true })
    expect(code).not.toBe(0)
  })
})

function tsBlocks(matching: RegExp): Block[] {
  return pages(matching).flatMap(({ blocks }) => blocks.filter(({ language }) => language === 'ts'))
}

/** What `npm init -y` writes, and what the page sets. */
function manifestOf(page: RegExp): Record<string, string> {
  const set = pages(page).flatMap(({ text }) => [...text.matchAll(/npm pkg set (\w+)=(\w+)/g)])
  return { type: 'commonjs', ...Object.fromEntries(set.map(([, key = '', value = '']) => [key, value])) }
}

/** A name by which an error of the compiler finds its page. */
function fileOf({ page, line }: Block): string {
  return `${page.replaceAll(/[/.]/g, '-')}-line-${line}.ts`
}

/** The lines that a program says it prints. */
function promised(code: string): string[] {
  return [...code.matchAll(/\/\/ prints: (.*)$/gm)].map((match) => match[1] ?? '')
}

/** A block whose first line is a comment with a file's name is that file. */
function namedFile({ code }: Block): (readonly [string, string])[] {
  const name = /^\/\/ ([\w.-]+\.ts)$/m.exec(code.split('\n')[0] ?? '')?.[1]
  return name === undefined ? [] : [[name, code]]
}

interface Step {
  readonly command: string
  readonly said: string
}

/** The commands of a shell block; what a comment beside one says must be in its output. */
function commandsOf({ language, code }: Block): Step[] {
  if (language !== 'sh') return []
  return code
    .split('\n')
    .filter((line) => /^(node|npx waybill) /.test(line))
    .map((line) => {
      const [command = '', said = ''] = line.split(/\s+# /)
      return { command, said: said.trim() }
    })
}

async function runStep({ command, said }: Step, { folder, url }: { readonly folder: string; readonly url: string }) {
  if (command === 'npx waybill dev') return await runDev(said, { folder, url })
  const words = command
    .replace(/^npx waybill/, join(repositoryRoot, 'src/cli/main.ts'))
    .replace(/^node /, '')
    .split(' ')
  const [program = '', ...args] = words
  return runFromSource(program, { DATABASE_URL: url }, { cwd: folder, args })
}

/** `waybill dev` runs until it is stopped: once it has said what the page says, or has ended by itself. */
async function runDev(said: string, { folder, url }: { readonly folder: string; readonly url: string }) {
  const dev = startChild(new URL('../../src/cli/main.ts', import.meta.url), {
    args: ['dev', '--config', join(folder, 'waybill.config.ts')],
    env: { DATABASE_URL: url, NODE_OPTIONS: `--import ${hook}` },
  })
  let hasEnded = false
  void dev.exited.then(() => (hasEnded = true))
  await eventually(() => hasEnded || dev.stderr.includes(said), { timeoutMs: 120_000 })
  const { code } = await dev.kill('SIGINT')
  return { code, output: dev.stderr }
}

async function runFromSource(
  program: string,
  env: Readonly<Record<string, string>>,
  { cwd = repositoryRoot, args = [] as readonly string[] } = {},
) {
  return await runCommand(['node', '--import', hook, program, ...args], { env, cwd })
}
