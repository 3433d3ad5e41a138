/**
 * `npm run example -- game`: runs examples/<name>/main.ts from source; without a name, lists the examples.
 *
 * A second word chooses another program of the example: `npm run example -- game chaos`.
 */
import './from-source.ts'
import { existsSync, readdirSync } from 'node:fs'

const examples = new URL('../examples/', import.meta.url)
const [name, program = 'main'] = process.argv.slice(2)
const file = new URL(`${name}/${program}.ts`, examples)
if (name === undefined || !existsSync(file)) {
  console.error(
    `Examples: ${readdirSync(examples).join(', ')}.${name === undefined ? '' : ` There is no ${name}/${program}.ts.`}`,
  )
  process.exitCode = name === undefined ? 0 : 2
} else {
  await import(file.href)
}
