/**
 * Lets programs of this repository import `waybill` and its subpaths by their public names without a build: each name is resolved
 * to the source of what package.json exports. `node --import ./scripts/from-source.ts examples/game/main.ts`.
 */
import { readFileSync } from 'node:fs'
import { registerHooks } from 'node:module'

const root = new URL('../', import.meta.url)
const manifest = JSON.parse(readFileSync(new URL('package.json', root), 'utf8')) as {
  readonly exports: Readonly<Record<string, string | { readonly default: string }>>
}

registerHooks({
  resolve: (name, context, next) => {
    const isOurs = name === 'waybill' || name.startsWith('waybill/')
    const target = isOurs ? manifest.exports[`.${name.slice('waybill'.length)}`] : undefined
    if (typeof target !== 'object') return next(name, context)
    const source = target.default.replace(/^\.\/dist\//, 'src/').replace(/\.js$/, '.ts')
    return { url: new URL(source, root).href, format: 'module-typescript', shortCircuit: true }
  },
})
