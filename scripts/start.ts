/**
 * `npm start`: the live demo of examples/demo, from source. Arguments are its own: `npm start -- --for 30s --json`.
 *
 * What Node makes of the sources is kept in .cache, for this process and for those that it starts: a process that was killed is
 * back in half the time.
 */
import './from-source.ts'
import { enableCompileCache } from 'node:module'
import { fileURLToPath } from 'node:url'

const cache = (process.env['NODE_COMPILE_CACHE'] ??= fileURLToPath(new URL('../.cache/compiled', import.meta.url)))
enableCompileCache(cache)
await import(new URL('../examples/demo/main.ts', import.meta.url).href)
