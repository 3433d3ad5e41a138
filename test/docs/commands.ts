/**
 * Command lines as pages mention them, and what is wrong with them: a script that package.json does not have, a command or an
 * option that the CLI does not have. Options of npm scripts are checked against the text of the script.
 */
import { globSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { proofSuites } from '../../scripts/proof-suites.ts'
import { repositoryRoot } from '../../scripts/run-command.ts'
import type { Command } from '../../src/cli/frame/command.ts'
import { parseLine } from '../../src/cli/frame/parse-command.ts'
import { inlineCode, type Page } from './pages.ts'

export interface Known {
  readonly scripts: readonly string[]
  readonly commands: Readonly<Record<string, Command>>
}

const shells = new Set(['sh', '', 'text'])
const npmWords = new Set(['install', 'pkg', 'test', 'start', 'run', 'pack', 'ci'])

/** Every line of a page that calls `npm` or `waybill`. */
export function shellCommands({ blocks, prose }: Page): string[] {
  const lines = blocks.filter(({ language }) => shells.has(language)).flatMap(({ code }) => code.split('\n'))
  return [...lines, ...inlineCode(prose)].flatMap((line) =>
    line
      .split(/&&|\|/)
      .map((part) =>
        part
          .replace(/\s(#|  ).*$/, '')
          .replace(/^\s*\$?\s*/, '')
          .trim(),
      )
      .filter((part) => /^(npx )?waybill [a-z]|^npm /.test(part)),
  )
}

/** What does not exist in a command line. */
export function commandProblems(line: string, known: Known): string[] {
  const drill = /^npm run drill --\s+(.*)$/.exec(line)?.[1]
  if (drill !== undefined) return waybillProblems(`waybill drill ${drill}`, known)
  return line.startsWith('npm ') ? npmProblems(line, known) : waybillProblems(line, known)
}

function npmProblems(line: string, { scripts }: Known): string[] {
  const [, word = '', ...rest] = line.split(/\s+/)
  if (!npmWords.has(word)) return [`npm has no "${word}" that a page should use`]
  const [script, after] = word === 'run' ? [rest[0], rest.slice(1)] : [word, rest]
  if (script === undefined || ['install', 'pack', 'pkg', 'ci'].includes(script)) return []
  if (!scripts.includes(script)) return [`no script "${script}"`]
  const choices = choicesOf(script)
  const [chosen] = after.filter((each) => /^[a-z]/.test(each))
  if (choices !== undefined && chosen !== undefined && !choices.includes(chosen)) return [`"${script}" has no "${chosen}"`]
  const options = after
    .filter((each) => each.startsWith('--') && each.length > 2)
    .map((each) => each.slice(2).split('=')[0] ?? '')
  const source = scriptText(script)
  return options.filter((option) => !source.includes(option)).map((option) => `"${script}" has no option --${option}`)
}

/** What may be named behind a script; undefined where anything may. */
function choicesOf(script: string): readonly string[] | undefined {
  const names = (pattern: string, ending: string): string[] =>
    globSync(pattern, { cwd: repositoryRoot }).map((path) => basename(path, ending))
  if (script === 'bench') return names('bench/*.bench.ts', '.bench.ts')
  if (script === 'example') return names('examples/*', '')
  return script === 'proof' ? proofSuites.map(({ name }) => name) : undefined
}

/** The programs behind a script: what it starts, and for the demo what that imports. */
function scriptText(script: string): string {
  const manifest = JSON.parse(readFileSync(join(repositoryRoot, 'package.json'), 'utf8')) as {
    readonly scripts: Readonly<Record<string, string>>
  }
  const files = manifest.scripts[script]?.match(/[\w/-]+\.ts/g) ?? []
  const demo = script === 'start' ? ['examples/demo/main.ts'] : []
  return [...files, ...demo].map((file) => readFileSync(join(repositoryRoot, file), 'utf8')).join('\n')
}

function waybillProblems(line: string, { commands }: Known): string[] {
  const words = line
    .replace(/^(npx )?waybill /, '')
    // What stands for something else: …, <id>, "quoted words", a redirection.
    .replaceAll(/\s[<>]\s.*$/g, '')
    .replaceAll(/'[^']*'|"[^"]*"|<[^>]+>/g, 'x')
    .replaceAll(/\s?…/g, '')
    .split(/\s+/)
    .filter((word) => word !== '')
  try {
    const { command, words: found } = parseLine(words, commands)
    return command === undefined && !isGroup(words, commands) ? [`no command "${found === '' ? words.join(' ') : found}"`] : []
  } catch (error) {
    return [(error as Error).message]
  }
}

/** `waybill outbox …` speaks of a group of commands. */
function isGroup(words: readonly string[], commands: Readonly<Record<string, Command>>): boolean {
  return words.length === 1 && Object.keys(commands).some((name) => name.startsWith(`${words[0]} `)) && words[0] !== 'dlq'
}
