import { expect, test } from 'vitest'
import { cycles, importersOf, parseSource, type SourceGraph } from './source-graph.ts'

function graphOf(files: Readonly<Record<string, string>>): SourceGraph {
  return new Map(Object.entries(files).map(([path, text]) => [path, parseSource(path, text)]))
}

test('imports of every form are seen, and which of them are of types', () => {
  const text = [
    "import type { A } from './a.ts'",
    'import {',
    '  b,',
    '  type B,',
    "} from '../b.ts'",
    "import './c.ts'",
    "import { readFileSync } from 'node:fs'",
    "export type * from './d.ts'",
    "export { e } from './e.ts'",
    "const load = async () => await import('./f.ts')",
    "type G = import('./g.ts').G",
  ].join('\n')
  expect(parseSource('src/x/y.ts', text).imports.map(({ to, isType }) => `${to}${isType ? ' type' : ''}`)).toEqual([
    'src/x/a.ts type',
    'src/b.ts',
    'src/x/d.ts type',
    'src/x/e.ts',
    'src/x/c.ts',
    'src/x/f.ts',
    'src/x/g.ts type',
  ])
})

test('a name is exported where it is declared, not where it is passed on', () => {
  const text = [
    'export const a: number = 1',
    'export async function b(): Promise<void> {}',
    'export interface C {}',
    'const d = 1',
    'export { d, d as e }',
    "import type { G } from './g.ts'",
    'export type { G }',
    "export { f } from './f.ts'",
  ].join('\n')
  expect([...parseSource('src/x.ts', text).exports]).toEqual(['a', 'b', 'C', 'd', 'e'])
})

test('lines of code and of comments are told apart', () => {
  const { codeLines, commentLines } = parseSource('src/x.ts', '/**\n * Header.\n */\n\nconst a = 1 // one\n// two\nconst b = 2\n')
  expect({ codeLines, commentLines }).toEqual({ codeLines: 2, commentLines: 4 })
})

test('a cycle of types is one only when types are followed', () => {
  const graph = graphOf({
    'src/a.ts': "import { b } from './b.ts'\n",
    'src/b.ts': "import type { C } from './c.ts'\n",
    'src/c.ts': "import { a } from './a.ts'\n",
    'src/d.ts': "import { a } from './a.ts'\n",
  })
  expect(cycles(graph, false)).toEqual([])
  expect(cycles(graph, true)).toEqual([['src/a.ts', 'src/b.ts', 'src/c.ts']])
  expect(importersOf(graph).get('src/a.ts')).toEqual(['src/c.ts', 'src/d.ts'])
})
