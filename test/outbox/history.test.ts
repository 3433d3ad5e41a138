import { expect, test } from 'vitest'
import { duplicates, violations, type Fact } from './history.ts'

const fact = (aggregate: string, version: number, id = `${aggregate}${version}`): Fact => ({ aggregate, version, id })
const committed = [fact('a', 1), fact('a', 2), fact('a', 3), fact('b', 1)]

test('a history in order, with duplicates of what was there already, has no violations', () => {
  const arrived = [fact('a', 1), fact('b', 1), fact('a', 2), fact('a', 1), fact('a', 3), fact('a', 2)]
  expect(violations({ committed, arrived, left: 0 })).toEqual([])
  expect(duplicates(arrived)).toBe(2)
})

test('each kind of violation is named', () => {
  const check = (arrived: readonly Fact[], left = 0): string[] => violations({ committed, arrived, left })
  expect(check([fact('a', 1), fact('a', 3), fact('a', 2), fact('b', 1)])).toEqual(['inverted a 2 after a 3'])
  expect(check([fact('a', 1), fact('a', 2), fact('b', 1)])).toEqual(['lost a 3'])
  expect(check([...committed, fact('a', 4)])).toEqual(['ghost a 4'])
  expect(check([...committed, fact('a', 1, 'other')])).toEqual(['ghost a 1'])
  expect(check(committed, 2)).toEqual(['stuck: 2 rows'])
  expect(violations({ committed: [...committed, fact('a', 1, 'other')], arrived: committed, left: 0 })).toContain('twice a 1')
  expect(violations({ committed, arrived: committed.slice(1), left: 0, dropped: new Set(['a1']) })).toEqual([])
})
