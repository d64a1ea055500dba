package pgleasetest_test
import ("testing";"time";"github.com/pglease/pglease/pglease/pgleasetest")
func TestMain(m *testing.M){ pgleasetest.Main(m)}
func TestX(t *testing.T){
 for range 3 {
 t0:=time.Now()
 p:=pgleasetest.Pool(t)
 t.Log(time.Since(t0))
 var n int
 if err:=p.QueryRow(t.Context(),"select count(*) from pglease.installation").Scan(&n);err!=nil{t.Fatal(err)}
 }
}
