/**
 * The sources as a graph: each file with its imports, the names it exports and its lines. Read from the text, because formatting is
 * fixed: a statement of import or export starts its line.
 */
import { globSync, readFileSync } from 'node:fs'
import { join, posix, sep } from 'node:path'

export interface Import {
  /** Relative to the root; nothing for a package. */
  readonly to: string
  readonly isType: boolean
}

export interface SourceFile {
  /** Relative to the root, with `/`. */
  readonly path: string
  readonly text: string
  readonly imports: readonly Import[]
  /** The names declared here, without what is passed on from elsewhere. */
  readonly exports: ReadonlySet<string>
  readonly codeLines: number
  readonly commentLines: number
}

export type SourceGraph = ReadonlyMap<string, SourceFile>

/** What ships: the sources of all packages without their tests. */
export function readSources(root: string): SourceGraph {
  const paths = globSync('{src,packages/*/src}/**/*.ts', { cwd: root, exclude: (path) => /\.(?:test|test-d)\.ts$/.test(path) })
  const ours = paths.map((path) => path.replaceAll(sep, '/')).toSorted()
  return new Map(ours.map((path) => [path, parseSource(path, readFileSync(join(root, path), 'utf8'))]))
}

export function parseSource(path: string, text: string): SourceFile {
  const lines = text.split('\n').map((line) => line.trim())
  const commentLines = lines.filter((line) => /^(?:\/\*|\*|\/\/)/.test(line)).length
  const codeLines = lines.filter((line) => line !== '').length - commentLines
  return { path, text, imports: importsOf(path, text), exports: exportsOf(text), codeLines, commentLines }
}

/** Who imports each file, from the sources. */
export function importersOf(graph: SourceGraph): ReadonlyMap<string, readonly string[]> {
  const importers = new Map<string, string[]>()
  for (const { path, imports } of graph.values()) {
    for (const to of new Set(imports.map((each) => each.to))) importers.set(to, [...(importers.get(to) ?? []), path])
  }
  return importers
}

/** The names that several files of one package export. */
export function sharedNames(graph: SourceGraph): { readonly name: string; readonly files: readonly string[] }[] {
  const packageOf = (path: string): string => /^packages\/[\w-]+/.exec(path)?.[0] ?? ''
  const exported = [...graph.values()].flatMap(({ path, exports }) => [...exports].map((name) => ({ name, path })))
  return [...Map.groupBy(exported, ({ name, path }) => `${packageOf(path)} ${name}`).values()]
    .filter((each) => each.length > 1)
    .map((each) => ({ name: each[0]?.name ?? '', files: each.map(({ path }) => path) }))
}

/** How many files a file imports. */
export function fanOut({ imports }: SourceFile): number {
  return new Set(imports.map(({ to }) => to)).size
}

/** The files of each cycle of imports; type imports are followed when asked for. */
export function cycles(graph: SourceGraph, withTypes: boolean): string[][] {
  const state = {
    order: new Map<string, number>(),
    low: new Map<string, number>(),
    stack: [] as string[],
    found: [] as string[][],
  }
  const visit = (path: string): void => {
    const place = state.order.size
    state.order.set(path, place)
    state.low.set(path, place)
    state.stack.push(path)
    for (const { to, isType } of graph.get(path)?.imports ?? []) {
      if ((isType && !withTypes) || !graph.has(to)) continue
      if (!state.order.has(to)) visit(to)
      else if (!state.stack.includes(to)) continue
      state.low.set(path, Math.min(state.low.get(path) ?? place, state.low.get(to) ?? place))
    }
    if (state.low.get(path) !== place) return
    const members = state.stack.splice(state.stack.indexOf(path))
    if (members.length > 1) state.found.push(members.toSorted())
  }
  for (const path of graph.keys()) if (!state.order.has(path)) visit(path)
  return state.found
}

const statement = /^(?:import|export)\s+(type\s+)?([\w*{}\s,$]*?)\s*from\s+'(\.[^']+)'/gm
const sideEffect = /^import\s+'(\.[^']+)'/gm
const dynamic = /(?<=\b(?:await|=>|return)\s+)import\('(\.[^']+)'\)/g
const typeQuery = /(?<!(?:await|=>|return)\s+)\bimport\('(\.[^']+)'\)/g

function importsOf(path: string, text: string): Import[] {
  const target = (specifier: string): string => posix.join(posix.dirname(path), specifier)
  return [
    ...[...text.matchAll(statement)].map(([, type, , to = '']) => ({ to: target(to), isType: type !== undefined })),
    ...[...text.matchAll(sideEffect), ...text.matchAll(dynamic)].map(([, to = '']) => ({ to: target(to), isType: false })),
    ...[...text.matchAll(typeQuery)].map(([, to = '']) => ({ to: target(to), isType: true })),
  ]
}

const declaration =
  /^export\s+(?:declare\s+)?(?:abstract\s+)?(?:async\s+)?(?:function\*?|const|let|class|interface|type|enum)\s+([\w$]+)/gm
const list = /^export\s+(?:type\s+)?\{([^}]*)\}(?!\s*from)/gm

/** A name that is imported and exported again belongs to the file it comes from. */
function exportsOf(text: string): Set<string> {
  const isOurs = (name: string): boolean =>
    new RegExp(`^(?:function\\*?|const|let|class|interface|type|enum) ${name}\\b`, 'm').test(text)
  const listed = [...text.matchAll(list)].flatMap(([, names = '']) => names.split(','))
  const named = listed
    .map((each) =>
      each
        .replace(/^\s*type\s/, '')
        .trim()
        .split(/\sas\s/),
    )
    .filter(([name = '']) => name !== '' && isOurs(name))
  return new Set([...[...text.matchAll(declaration)].map(([, name = '']) => name), ...named.map((names) => names.at(-1) ?? '')])
}
