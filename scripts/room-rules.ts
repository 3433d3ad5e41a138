/**
 * The rules of the house. Each is data: its name, and what breaks it in a tree, with a figure that may only become smaller.
 */
import { basename, dirname } from 'node:path'
import {
  featureOf,
  features,
  floorLines,
  folderCap,
  folderOf,
  homonyms,
  hubCap,
  pronounCap,
  roomOf,
  tables,
  uncapped,
} from './layers.ts'
import { type SourceFile, type SourceGraph, fanOut, importersOf, sharedNames } from './source-graph.ts'

export interface Tree {
  readonly sources: SourceGraph
  /** The files that users import and programs start. */
  readonly entries: ReadonlySet<string>
  /** The tests that stand in `src`. */
  readonly tests: readonly string[]
  /** All code with its text: sources, tests and scripts. */
  readonly texts: ReadonlyMap<string, string>
}

export interface Breach {
  /** The file, folder, name or edge. */
  readonly at: string
  readonly figure: number
  readonly problem: string
}

export interface RoomRule {
  readonly name: string
  readonly find: (tree: Tree) => Breach[]
}

// Written in parts, so that this file does not count itself.
const pronouns = new RegExp(
  `\\b(?:${['no' + 'body', 'who' + 'ever', 'what' + 'ever', 'those ' + 'who', 'of ' + 'which'].join('|')})\\b`,
  'gi',
)

export const roomRules: readonly RoomRule[] = [
  {
    // More cannot be seen at a glance.
    name: 'folder cap',
    find: ({ sources }) =>
      counted([...sources.keys()].map(dirname))
        .filter(([folder, figure]) => figure > folderCap && !uncapped.includes(folder))
        .map(([at, figure]) => ({
          at,
          figure,
          problem: `${figure} sources in one folder, ${folderCap} at most; make a room of some`,
        })),
  },
  {
    // A part that only one file uses is read with it.
    name: 'floor',
    find: ({ sources, entries, tests }) => {
      const importers = importersOf(sources)
      const tested = new Set(tests.map(stem))
      return [...sources.values()]
        .filter(({ path, codeLines }) => codeLines < floorLines && !entries.has(path))
        .filter((file) => !(isPure(file) && tested.has(stem(file.path))))
        .map(({ path }) => ({ at: path, importer: onlyOne(importers.get(path)) }))
        .filter(({ at, importer }) => importer !== undefined && dirname(importer) === dirname(at))
        .map(({ at, importer }) => ({
          at,
          figure: 1,
          problem: `small, and only ${basename(importer ?? '')} imports it; merge them`,
        }))
    },
  },
  {
    // The plan is of the house as it stands.
    name: 'plan',
    find: ({ sources }) => {
      const used = new Set([...sources.keys()].flatMap((path) => ends(path)).map(({ feature, room }) => `${feature} ${room}`))
      const planned = Object.entries(features).flatMap(([name, { rooms = ['.'] }]) =>
        rooms.flat().map((room) => `${name} ${room}`),
      )
      const alone = [...used].filter((room) => !planned.includes(room)).concat(planned.filter((room) => !used.has(room)))
      return alone.map((at) => ({ at, figure: 1, problem: 'stands in the plan or in the tree alone (scripts/layers.ts)' }))
    },
  },
  {
    // The rooms are the steps of the path; a step knows those before it.
    name: 'order',
    find: ({ sources }) =>
      edges(sources)
        .filter(({ from, to }) => from.feature === to.feature && !isInOrder(from.feature, from.room, to.room))
        .map(({ from, to }) => ({
          at: `${from.path} -> ${to.path}`,
          figure: 1,
          problem: `${folderOf(from.feature)}: ${from.room} comes before ${to.room}, or beside it, and does not import it`,
        })),
  },
  {
    // What is behind the face can change without a look at the rest.
    name: 'face',
    find: ({ sources }) =>
      counted(
        edges(sources)
          .filter(({ from, to }) => !isNear(from.feature, to.feature) && !isFace(to.feature, to.path))
          .map(({ to }) => to.path),
      ).map(([at, figure]) => ({
        at,
        figure,
        problem: `${figure} files of other features import it, and it is not a face (scripts/layers.ts)`,
      })),
  },
  {
    // One word, one meaning.
    name: 'one word',
    find: ({ sources }) =>
      sharedNames(sources)
        .filter(({ name }) => homonyms[name] === undefined)
        .map(({ name, files }) => ({
          at: name,
          figure: files.length,
          problem: `exported by ${files.length} files: ${files.join(', ')}`,
        })),
  },
  {
    // What is untested can be seen.
    name: 'test beside source',
    find: ({ sources, tests }) => {
      const stems = new Set([...sources.keys()].map(stem))
      return tests
        .filter((test) => !stems.has(stem(test)))
        .map((at) => ({
          at,
          figure: 1,
          problem: 'has no source of its name beside it; name it so, or move it to test/<guarantee>/',
        }))
    },
  },
  {
    // Sentences about an event, a relay or a consumer are read once.
    name: 'plain English',
    find: ({ texts }) =>
      [...texts]
        .map(([at, text]) => ({ at, figure: text.match(pronouns)?.length ?? 0 }))
        .filter(({ figure }) => figure > pronounCap)
        .map(({ at, figure }) => ({ at, figure, problem: `${figure} pronouns in the place of a noun, ${pronounCap} at most` })),
  },
  {
    // What knows everything changes with everything.
    name: 'hub cap',
    find: ({ sources, entries }) =>
      [...sources.values()]
        .map((file) => ({ at: file.path, figure: fanOut(file) }))
        .filter(({ at, figure }) => figure > hubCap && !entries.has(at) && !tables.includes(at))
        .map(({ at, figure }) => ({ at, figure, problem: `imports ${figure} files, ${hubCap} at most` })),
  },
]

interface End {
  readonly path: string
  readonly feature: string
  readonly room: string
}

/** The imports between files of features, type imports included. */
function edges(sources: SourceGraph): { readonly from: End; readonly to: End }[] {
  return [...sources.values()].flatMap(({ path, imports }) =>
    ends(path).flatMap((from) => [...new Set(imports.map(({ to }) => to))].flatMap(ends).map((to) => ({ from, to }))),
  )
}

/** A file of a feature as an end of imports. */
function ends(path: string): End[] {
  const feature = featureOf(path)
  return feature === undefined ? [] : [{ path, feature, room: roomOf(feature, path) }]
}

function isInOrder(feature: string, from: string, to: string): boolean {
  const rooms = features[feature]?.rooms
  if (rooms === undefined || from === to) return true
  const place = (room: string): number => rooms.findIndex((each) => [each].flat().includes(room))
  return place(to) !== -1 && place(to) < place(from)
}

/** The same feature, or two of one folder. */
function isNear(one: string, other: string): boolean {
  return one === other || (one.includes('/') && dirname(one) === dirname(other))
}

function isFace(feature: string, path: string): boolean {
  const inside = path.slice(folderOf(feature).length + 1)
  return features[feature]?.faces?.some((face) => inside === face || (face.endsWith('/') && inside.startsWith(face))) ?? true
}

/** Without waiting, and without Node's modules. */
function isPure({ text }: SourceFile): boolean {
  return !/\b(?:async|await|Promise)\b|from 'node:/.test(text)
}

/** `src/core/options` for each of `src/core/options.ts`, `options.sql.ts` and `options.pg.test.ts`. */
function stem(path: string): string {
  return `${dirname(path)}/${basename(path).split('.')[0]}`
}

function onlyOne(paths: readonly string[] | undefined): string | undefined {
  return paths?.length === 1 ? paths[0] : undefined
}

/** How often each occurs. */
function counted(names: readonly string[]): [string, number][] {
  const counts = new Map<string, number>()
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1)
  return [...counts]
}
