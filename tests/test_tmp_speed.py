import pytest, psycopg
@pytest.mark.parametrize("n", range(60))
def test_x(fresh_postgres_url, n):
    with psycopg.connect(fresh_postgres_url) as d:
        for k in range(10): d.execute(f'create table t{k}(a int primary key, b text); insert into t{k} select g, g from generate_series(1,100) g')
@pytest.mark.parametrize("n", range(60))
def test_m(fresh_mongodb_url, n):
    import pymongo
    with pymongo.MongoClient(fresh_mongodb_url) as c:
        d=c.get_default_database()
        for k in range(3): d[f'c{k}'].create_index('a'); d[f'c{k}'].insert_one({'a':1})
