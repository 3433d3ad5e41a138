/**
 * Instruments the sources of a tree as they are loaded, so that every call of a function can be recorded.
 *
 * A walk has the files and functions that were entered, and how often the next call was in another file. Small helpers that
 * every step calls are counted as entered, but not as a change of file.
 */
import { readFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { parseAst } from 'vitest/node'

export interface Walk {
  readonly files: readonly string[]
  readonly functions: number
  readonly changes: number
}

/** What tests and drills run on; it is not on the path of an event. */
const stage = /(?:^|\/)(?:pubsub-server|testing)\//
const helpers = /\/(?:clock|sql|id|random|signals|version)\.ts$/

/** Functions by their number, `path:offset`. */
const functions: string[] = []
const calls: number[] = []
let isRecording = false

/** Resolves `waybill` and its subpaths to the sources under `root`, and instruments them. */
export function traceSources(root: string): void {
  const base = pathToFileURL(`${root}/`)
  const manifest = JSON.parse(readFileSync(new URL('package.json', base), 'utf8')) as {
    readonly exports: Readonly<Record<string, string | { readonly default: string }>>
  }
  Object.assign(globalThis, { waybillCall: (id: number) => isRecording && calls.push(id) })
  registerHooks({
    resolve: (name, context, next) => {
      const target =
        name === 'waybill' || name.startsWith('waybill/') ? manifest.exports[`.${name.slice('waybill'.length)}`] : undefined
      if (typeof target !== 'object') return next(name, context)
      const source = target.default.replace(/^\.\/dist\//, 'src/').replace(/\.js$/, '.ts')
      return { url: new URL(source, base).href, format: 'module-typescript', shortCircuit: true }
    },
    load: (url, context, next) => {
      const path = url.startsWith(base.href) ? relative(root, fileURLToPath(url)) : ''
      if (!/^(?:src|packages\/[\w-]+\/src)\/.*\.ts$/.test(path)) return next(url, context)
      return { format: 'module-typescript', source: instrument(path, readFileSync(new URL(url), 'utf8')), shortCircuit: true }
    },
  })
}

/** Records the calls until `work` has ended. */
export async function walk(work: () => Promise<void>): Promise<Walk> {
  calls.length = 0
  isRecording = true
  await work()
  isRecording = false
  const places = calls.map((id) => functions[id] ?? '').filter((place) => !stage.test(place))
  const path = places.map((place) => place.split(':')[0] ?? '')
  const steps = path.filter((file) => !helpers.test(file))
  return {
    files: [...new Set(path)].toSorted(),
    functions: new Set(places).size,
    changes: steps.filter((file, i) => i > 0 && file !== steps[i - 1]).length,
  }
}

interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly body?: Node
}

/** The source with a call of the recorder at the start of each function. */
function instrument(path: string, text: string): string {
  const inserts: { readonly at: number; readonly text: string }[] = []
  const visit = (node: unknown): void => {
    if (Array.isArray(node)) return node.forEach(visit)
    if (typeof node !== 'object' || node === null) return
    const { type, start, body } = node as Node
    if (/^(?:FunctionDeclaration|FunctionExpression|ArrowFunctionExpression)$/.test(type) && body != null) {
      const call = `waybillCall(${functions.push(`${path}:${start}`) - 1})`
      if (/^(?:BlockStatement|FunctionBody)$/.test(body.type)) inserts.push({ at: body.start + 1, text: `${call};` })
      else inserts.push({ at: body.start, text: `(${call}, ` }, { at: body.end, text: ')' })
    }
    Object.values(node).forEach(visit)
  }
  visit(parseAst(text, { lang: 'ts' }, path))
  const parts = inserts.toSorted((a, b) => b.at - a.at)
  return parts.reduce((whole, { at, text: insert }) => whole.slice(0, at) + insert + whole.slice(at), text)
}
