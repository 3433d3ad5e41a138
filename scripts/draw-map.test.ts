import { expect, test } from 'vitest'
import { drawMap, withoutCounts } from './draw-map.ts'
import { repositoryRoot } from './run-command.ts'
import { readSources } from './source-graph.ts'

test('a picture is stale by its rooms, not by its counts', () => {
  const sources = readSources(repositoryRoot)
  const fewer = new Map([...sources].filter(([path]) => path !== 'src/core/errors.ts'))
  const [picture, other] = [drawMap(sources, 'light'), drawMap(fewer, 'light')]
  expect(other).not.toBe(picture)
  expect(withoutCounts(other)).toBe(withoutCounts(picture))
  expect(withoutCounts(picture)).not.toBe(withoutCounts(picture.replace('>wake-up<', '>alarm<')))
})
