/**
 * The pages that people read, taken apart: code blocks, code in the middle of sentences, links, headings and tables.
 *
 * Everything the checks of this folder know about Markdown is here; the pages keep to the plain forms that it understands.
 */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { repositoryRoot } from '../../scripts/run-command.ts'

export interface Block {
  readonly page: string
  readonly line: number
  /** What follows the fence: `ts`, `sh`, `text`, or nothing. */
  readonly language: string
  readonly code: string
}

export interface Page {
  /** Relative to the repository. */
  readonly path: string
  readonly text: string
  readonly blocks: readonly Block[]
  /** The page without its blocks; their lines are empty, so that line numbers stay. */
  readonly prose: string
}

const patterns = ['*.md', 'docs/**/*.md', 'examples/*/README.md', 'packages/*/README.md', 'deploy/**/*.md']
const historical = /^docs\/decisions\/\d/

/** Every page, or those whose path matches. Decisions are history: they may name what is no more. */
export function pages(matching: RegExp = /./): Page[] {
  return globSync(patterns, { cwd: repositoryRoot })
    .filter((path) => matching.test(path) && !historical.test(path))
    .toSorted()
    .map(readPage)
}

/** A page taken apart. */
export function parsePage(path: string, text: string): Page {
  const blocks: Block[] = []
  const prose = text.replaceAll(/^```([^\n]*)\n([\s\S]*?)^```$/gm, (all, language: string, code: string, offset: number) => {
    blocks.push({ page: path, line: text.slice(0, offset).split('\n').length + 1, language, code })
    return all.replaceAll(/[^\n]/g, '')
  })
  return { path, text, blocks, prose }
}

/** Code in the middle of sentences. */
export function inlineCode(prose: string): string[] {
  return [...prose.matchAll(/`([^`\n]+)`/g)].map((match) => match[1] ?? '')
}

/** The targets of links. */
export function linkTargets(prose: string): string[] {
  return [...prose.replaceAll(/`[^`\n]*`/g, '').matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1] ?? '')
}

/** The names by which headings can be linked to, as GitHub makes them. */
export function anchors(prose: string): Set<string> {
  const titles = [...prose.matchAll(/^#+ (.+)$/gm)].map((match) => match[1] ?? '')
  return new Set(
    titles.map((title) =>
      title
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  )
}

/** The rows of tables, as cells, with the head that they stand under. */
export function tableRows(prose: string): { readonly head: readonly string[]; readonly cells: readonly string[] }[] {
  return [...prose.matchAll(/(^\|.*\|\n)\|(?: ?:?-+:? ?\|)+\n((?:^\|.*\|\n?)+)/gm)].flatMap(([, head = '', body = '']) =>
    body
      .trimEnd()
      .split('\n')
      .map((row) => ({ head: cellsOf(head), cells: cellsOf(row) })),
  )
}

function cellsOf(row: string): string[] {
  return row
    .trim()
    .slice(1, -1)
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim())
}

function readPage(path: string): Page {
  return parsePage(path, readFileSync(join(repositoryRoot, path), 'utf8'))
}
