/**
 * The import rules of `.oxlintrc.json`, written from the plan of the house: who may import whom, and which packages. They stand between
 * two comments of that file.
 */
import { type Feature, features, folderOf } from './layers.ts'

const begin = '    // Made from scripts/layers.ts by scripts/rooms.ts: do not edit.\n'
const end = '    // End of what is made.\n'

/** The lint settings with the rules as they are to be. */
export function fillLintSettings(settings: string): string {
  const [before, rest] = [settings.split(begin)[0] ?? '', settings.split(end)[1]]
  if (rest === undefined) return `${settings}\n${begin}${end}`
  return `${before}${begin}${Object.keys(features).map(override).join('')}${end}${rest}`
}

function override(name: string): string {
  const feature = features[name] ?? { imports: [] }
  const patterns = [
    { regex: `^(\\.\\./)+(${forbidden(name, feature).join('|')})(/|$)`, message: mayImport(name, feature) },
    ...(feature.hasStatements === false
      ? [{ regex: '\\.sql\\.ts$', message: `${folderOf(name)} has no SQL of its own: add a function to src/ops.` }]
      : []),
    ...(feature.packages === 'any' ? [] : [{ group: packages(feature), message: mayUse(name, feature.packages) }]),
  ]
  const rule = { files: [`${folderOf(name)}/**`], rules: { 'no-restricted-imports': ['error', { patterns }] } }
  return `    ${print(rule, '    ')},\n`
}

/** What follows the dots in the path to a feature that is not to be imported; a sibling needs no parent's name. */
function forbidden(name: string, { folder, imports }: Feature): string[] {
  if (folder !== undefined) return ['src', 'test']
  const others = Object.keys(features).filter((each) => each !== name && !imports.includes(each))
  const parent = name.slice(0, name.indexOf('/') + 1)
  const tails = others.filter((each) => features[each]?.folder === undefined)
  return [
    ...tails.map((each) => (parent !== '' && each.startsWith(parent) ? each.slice(parent.length) : each)),
    'packages',
    'index\\.ts',
  ]
}

function packages({ packages = [], touchesProcess }: Feature): string[] {
  const allowed = packages === 'any' ? [] : packages.map((name) => `!${name}`)
  return [
    '*',
    '@*/*',
    '!./**',
    '!../**',
    '!.*',
    '!node:*',
    '!node:*/*',
    ...allowed,
    ...(touchesProcess === true ? [] : ['node:process']),
  ]
}

function mayImport(name: string, { imports }: Feature): string {
  const said = imports.length === 0 ? 'nothing but itself' : `${imports.join(', ')} only`
  return `${folderOf(name)} imports ${said}; other features are received as collaborators.`
}

function mayUse(name: string, names: readonly string[] = []): string {
  const said = names.filter((each) => !each.endsWith('*') || each.endsWith('/*')).join(', ')
  return `${folderOf(name)} imports no package${said === '' ? '' : ` but ${said}`}.`
}

/** JSON in the form that the formatter gives it: each entry of an object on a line, a list of texts on one where it fits. */
export function print(value: unknown, indent = '', column = indent.length): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const inner = `${indent}  `
  if (Array.isArray(value)) {
    const flat = `[${value.map((each) => JSON.stringify(each)).join(', ')}]`
    const isFlat = value.every((each) => typeof each === 'string') && column + flat.length < 130
    return isFlat ? flat : `[\n${value.map((each) => inner + print(each, inner)).join(',\n')}\n${indent}]`
  }
  const entries = Object.entries(value).map(([key, each]) => {
    const name = `${inner}${JSON.stringify(key)}: `
    return name + print(each, inner, name.length)
  })
  return entries.length === 0 ? '{}' : `{\n${entries.join(',\n')}\n${indent}}`
}
